#include "tests/run_program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "tensor/check.h"

extern char** environ;

namespace headroom::testing {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

/// A file without a name, so that no output can fill a pipe and nothing is left behind.
int nameless_file(const std::string& content = "") {
  const int fd = ::memfd_create("headroom-test", MFD_CLOEXEC);
  check(fd >= 0, "memfd_create: {}", std::strerror(errno));
  const bool whole =
      ::pwrite(fd, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size());
  check(whole, "a program's input can't be stored: {}", std::strerror(errno));
  return fd;
}

std::string content_of(int fd) {
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::pread(fd, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(std::map<std::string, std::string> added) {
  // Tests run side by side: a thread that spins while it waits would take another program's core.
  added.emplace("OMP_WAIT_POLICY", "passive");
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

void limit(int resource, uint64_t bytes) {
  const rlimit value{bytes, bytes};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) ::_exit(126);
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "headroom-test-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "mkdtemp {}: {}", name, std::strerror(errno));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::set<std::string> TemporaryFolder::names() const {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

Program::Program(const std::vector<std::string>& arguments, const RunOptions& options)
    : deadline_(now() + options.timeout_seconds) {
  std::vector<std::string> words = options.launcher;
  words.emplace_back(HEADROOM_PROGRAM);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_with(options.environment);
  const std::vector<char*> argv = pointers(words), envp = pointers(variables);
  const int in = nameless_file(options.input);
  out_ = nameless_file();
  err_ = nameless_file();

  pid_ = ::fork();
  check(pid_ >= 0, "fork: {}", std::strerror(errno));
  if (pid_ == 0) {  // only async-signal-safe calls from here: other threads may hold locks
    ::setpgid(0, 0);
    const int out = options.output.empty() ? out_ : ::open(options.output.c_str(), O_WRONLY);
    if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err_, 2) < 0) ::_exit(126);
    if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) ::_exit(126);
    limit(RLIMIT_CORE, 0);
    if (options.memory_bytes > 0) limit(RLIMIT_AS, options.memory_bytes);
    if (options.file_bytes > 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      limit(RLIMIT_FSIZE, options.file_bytes);
    }
    ::execvpe(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // here as well, whoever comes first: send() needs the group
  ::close(in);
}

Program::~Program() {
  if (!reaped_) {
    send(SIGKILL);
    ::waitpid(pid_, &wait_status_, 0);
  }
  ::close(out_);
  ::close(err_);
}

void Program::send(int signal) {
  if (!reaped_) ::kill(-pid_, signal);
}

std::string Program::out() const { return content_of(out_); }
std::string Program::err() const { return content_of(err_); }

bool Program::ended() {
  if (!reaped_) reaped_ = ::waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return reaped_;
}

bool Program::late() const { return now() > deadline_; }

bool Program::wait_for_err(const std::string& text) {
  while (true) {
    const bool last_look = ended() || late();
    if (err().find(text) != std::string::npos) return true;
    if (last_look) return false;
    pause();
  }
}

RunResult Program::wait() {
  RunResult result;
  while (!ended()) {
    if (late() && !result.timed_out) {
      result.timed_out = true;
      send(SIGKILL);
    }
    pause();
  }
  if (WIFEXITED(wait_status_)) result.status = WEXITSTATUS(wait_status_);
  if (WIFSIGNALED(wait_status_)) result.signal = WTERMSIG(wait_status_);
  result.out = out();
  result.err = err();
  return result;
}

RunResult run_program(const std::vector<std::string>& arguments, const RunOptions& options) {
  return Program(arguments, options).wait();
}

int in_child(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  check(child >= 0, "fork: {}", std::strerror(errno));
  if (child == 0) {
    int status = 99;
    try {
      status = work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "in the child: %s\n", e.what());
    }
    std::fflush(nullptr);
    ::_exit(status);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void limit_memory([[maybe_unused]] uint64_t more) {
#if !defined(__SANITIZE_ADDRESS__)
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit(RLIMIT_AS, pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + more);
#endif
}

}  // namespace headroom::testing
