// Runs the headroom program as a user would, under limits, and hands back all it said and did.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace headroom::testing {

/// A folder of one's own, removed with its content at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  /// What it holds.
  std::set<std::string> names() const;

 private:
  std::filesystem::path path_;
};

struct RunOptions {
  std::vector<std::string> launcher = {};  // a program on the PATH, and its words before headroom's
  std::string input = {};                  // what stdin holds
  // Added to this process's own; OMP_WAIT_POLICY is passive unless it says otherwise.
  std::map<std::string, std::string> environment = {};
  std::filesystem::path directory = {};  // to run in; empty: here
  std::filesystem::path output = {};     // stdout's file, such as /dev/full; empty: captured
  double timeout_seconds = 60;           // then SIGKILL for the program and its children
  uint64_t memory_bytes = 0;             // address space (RLIMIT_AS); 0: no limit
  uint64_t file_bytes =
      0;  // size of a file (RLIMIT_FSIZE, as an error and not a signal); 0: no limit
};

struct RunResult {
  int status = -1;  // exit status; -1 when a signal ended it
  int signal = 0;   // that signal
  bool timed_out = false;
  std::string out, err;
};

/// HEADROOM_PROGRAM under way. The destructor kills what is still running.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const RunOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal);
  /// What has come so far on stdout and on stderr.
  std::string out() const;
  std::string err() const;
  /// Waits until stderr holds `text`; false when the program ends or the timeout passes without it.
  bool wait_for_err(const std::string& text);
  RunResult wait();

 private:
  bool ended();
  bool late() const;

  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  double deadline_ = 0;
  bool reaped_ = false;
  int wait_status_ = 0;
};

RunResult run_program(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// Runs `work` in a fork of this process and returns the exit status it returned, or 128 + the
/// signal that ended it. What it throws is printed and gives 99.
int in_child(const std::function<int()>& work);

/// Leaves this process (a child, in practice) `more` bytes of address space beyond what it holds
/// now. Under AddressSanitizer, whose shadow needs terabytes, it does nothing.
void limit_memory(uint64_t more);

}  // namespace headroom::testing
