// Input and output pass through unnamed temporary files: unlike pipes they can't fill up and block.
#include "experiments/process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tensor/check.h"

namespace headroom::experiments {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File temporary_file() {
  File file(std::tmpfile());
  check(file != nullptr, "[process] a temporary file can't be made: {}", std::strerror(errno));
  return file;
}

std::string content_of(std::FILE* file) {
  std::rewind(file);
  std::string content;
  std::array<char, 65536> buffer{};
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file)) {
    content.append(buffer.data(), count);
  }
  return content;
}

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  void redirect(std::FILE* file, int descriptor) {
    posix_spawn_file_actions_adddup2(&actions_, fileno(file), descriptor);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, std::string_view input) {
  const File in = temporary_file();
  const File out = temporary_file();
  const File err = temporary_file();
  // An empty view may have no memory, which fwrite must not be given.
  const size_t written = input.empty() ? 0 : std::fwrite(input.data(), 1, input.size(), in.get());
  check(written == input.size() && std::fflush(in.get()) == 0,
        "[process] the input of {} can't be written to a temporary file", arguments.front());
  std::rewind(in.get());

  FileActions actions;
  actions.redirect(in.get(), STDIN_FILENO);
  actions.redirect(out.get(), STDOUT_FILENO);
  actions.redirect(err.get(), STDERR_FILENO);
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv.front(), actions.get(), nullptr, argv.data(), environ);
  check(error == 0, "[process] {} can't be started: {}", arguments.front(), std::strerror(error));

  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    check(errno == EINTR, "[process] waiting for {} failed: {}", arguments.front(),
          std::strerror(errno));
  }
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = content_of(out.get()),
          .err = content_of(err.get())};
}

}  // namespace headroom::experiments
