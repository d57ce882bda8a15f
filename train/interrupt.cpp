// Signals, remembered.
#include "train/interrupt.h"

#include <unistd.h>

#include <array>
#include <csignal>

namespace headroom::train {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

volatile std::sig_atomic_t signals_seen = 0;
std::array<struct sigaction, kSignals.size()> actions_before;

void on_signal(int) {
  if (signals_seen != 0) {
    ::_exit(kInterrupted);
  }
  signals_seen = 1;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  signals_seen = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &action, &actions_before[i]);
  }
}

InterruptWatch::~InterruptWatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &actions_before[i], nullptr);
  }
}

bool InterruptWatch::requested() const { return signals_seen != 0; }

}  // namespace headroom::train
