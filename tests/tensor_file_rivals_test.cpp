// A file stays whole whatever happens to its writers: killed at any moment, or several at once.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tensor/file.h"
#include "tests/run_program.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

/// Rewrites `target` without end in 20 pieces of 1 MB, all of one letter, a byte to `progress` for
/// each.
[[noreturn]] void rewrite_forever(const fs::path& target, int progress) {
  try {
    for (char letter = 'a';; letter = letter == 'z' ? 'a' : static_cast<char>(letter + 1)) {
      const std::string piece(1 << 20, letter);
      write_file(target, [&](const Append& append) {
        for (int i = 0; i < 20; ++i) {
          append(piece.data(), piece.size());
          if (::write(progress, "p", 1) != 1) ::_exit(1);
        }
      });
    }
  } catch (const std::exception&) {
    ::_exit(2);
  }
}

// What a checkpoint meets when a run is killed: here at twenty random moments of a 20 MB rewrite.
TEST(File, AKilledWriterLeavesTheOldOrTheNewFileWhole) {
  constexpr size_t kSize = 20 << 20;
  const TemporaryFolder folder;
  const fs::path target = folder / "x";
  write_file(target, std::string(kSize, 'A'));
  std::mt19937 random(7);
  size_t interrupted = 0;
  for (int kill = 0; kill < 20; ++kill) {
    int progress[2];
    ASSERT_EQ(::pipe(progress), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(progress[0]);  // so that it ends when this test does
      rewrite_forever(target, progress[1]);
    }
    ASSERT_GT(child, 0);
    ::close(progress[1]);
    char byte = 0;
    const auto pieces = random() % 50;
    for (unsigned i = 0; i < pieces && ::read(progress[0], &byte, 1) == 1; ++i) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(progress[0]);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    const std::string bytes = read_file(target);
    ASSERT_EQ(bytes.size(), kSize);
    ASSERT_EQ(bytes.find_first_not_of(bytes[0]), std::string::npos) << "two versions are mixed";
    interrupted += folder.names().size() - 1;
  }
  EXPECT_GT(interrupted, 0U) << "no kill came in the middle of a write: this test showed nothing";
  write_file(target, std::string_view("after"));
  EXPECT_EQ(folder.names(), (std::set<std::string>{"x"}));
}

TEST(File, OnlyDeadWritersTemporariesAreRemoved) {
  const TemporaryFolder folder;
  for (const char* name : {"x.7.0.headroom-tmp", "y.7.0.headroom-tmp", "x.tmp", "x.7.0.tmp"}) {
    write_file(folder / name, std::string_view("someone's"));
  }
  write_file(folder / "x", std::string_view("mine"));
  EXPECT_EQ(folder.names(),
            (std::set<std::string>{"x", "y.7.0.headroom-tmp", "x.tmp", "x.7.0.tmp"}));
}

TEST(File, ARivalUnderWayIsLeftToFinish) {
  const TemporaryFolder folder;
  const fs::path target = folder / "x";
  int begun[2], go_on[2];
  ASSERT_EQ(::pipe(begun), 0);
  ASSERT_EQ(::pipe(go_on), 0);
  char byte = 0;
  const pid_t rival = ::fork();
  if (rival == 0) {
    ::close(go_on[1]);  // so that it ends when this test does, whatever the reason
    try {
      write_file(target, [&](const Append& append) {
        append("rival ", 6);
        if (::write(begun[1], "b", 1) != 1 || ::read(go_on[0], &byte, 1) != 1) ::_exit(1);
        append("whole", 5);
      });
    } catch (const std::exception&) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  ::close(begun[1]);  // so that a rival's early end is seen below
  ::close(go_on[0]);
  ASSERT_EQ(::read(begun[0], &byte, 1), 1);
  write_file(target, std::string_view("mine"));
  EXPECT_EQ(read_file(target), "mine");
  EXPECT_EQ(folder.names().size(), 2U) << "the rival's temporary must survive";
  ASSERT_EQ(::write(go_on[1], "g", 1), 1);
  int status = -1;
  ::waitpid(rival, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(target), "rival whole");
  ::close(begun[0]);
  ::close(go_on[1]);
}

TEST(File, ThreadsThatWriteOneNameLeaveOneWholeFile) {
  const TemporaryFolder folder;
  const fs::path target = folder / "x";
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&target, i] {
      for (int round = 0; round < 10; ++round) {
        write_file(target, std::string(50000, static_cast<char>('a' + i)));
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string bytes = read_file(target);
  EXPECT_EQ(bytes, std::string(50000, bytes[0]));
  EXPECT_EQ(folder.names(), (std::set<std::string>{"x"}));
}

}  // namespace
}  // namespace headroom
