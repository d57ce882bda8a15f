#include "cli/run.h"

int main(int count, char** words) { return headroom::cli::run(count, words); }
