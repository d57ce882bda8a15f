// A file is whole before and after whatever happens to its writer: errors, full disks, kills,
// rivals.
#include "tensor/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "tensor/check.h"
#include "tests/run_program.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using testing::in_child;
using testing::TemporaryFolder;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

template <class E, class F>
std::string message_of(F&& fails) {
  try {
    fails();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << text << "\" lacks \"" << part << "\"";
}

TEST(File, HoldsTheBytesThatWereWritten) {
  const TemporaryFolder folder;
  std::string bytes;
  for (int i = 0; i < 1000000; ++i) bytes.push_back(static_cast<char>(i % 251));
  for (const std::string& content : {std::string(), std::string("a\0\n\xff", 4), bytes}) {
    write_file(folder / "x", content);
    EXPECT_TRUE(read_file(folder / "x") == content) << content.size();
  }
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"x"}));
}

TEST(File, PiecesFollowEachOther) {
  const TemporaryFolder folder;
  write_file(folder / "x", [](const Append& append) {
    append("one ", 4);
    append(nullptr, 0);
    append("two", 3);
  });
  EXPECT_EQ(read_file(folder / "x"), "one two");
}

TEST(File, ARelativeNameIsWrittenInTheCurrentFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(in_child([&] {
              fs::current_path(folder.path());
              write_file("plain", std::string_view("here"));
              return 0;
            }),
            0);
  EXPECT_EQ(read_file(folder / "plain"), "here");
}

TEST(File, ALinkGoesOnPointingAtWhatWasReplaced) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "real");
  write_file(folder / "real" / "x", std::string_view("old"));
  fs::create_symlink("real/x", folder / "link");
  write_file(folder / "link", std::string_view("new"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real" / "x"), "new");
}

TEST(File, WhatCannotBeReadIsRefusedByName) {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const fs::path& path : {folder / "missing", folder.path(), pipe, fs::path("/dev/zero")}) {
    const std::string message = message_of<InputError>([&] { read_file(path); });
    expect_contains(message, path.string());
  }
  expect_contains(message_of<InputError>([&] { read_file(folder / "missing"); }),
                  "No such file or directory");
}

TEST(File, WhatCannotBeWrittenIsRefusedByNameAndLeftAlone) {
  const TemporaryFolder folder;
  write_file(folder / "file", std::string_view("content"));
  for (const fs::path& path :
       {folder / "missing" / "x", folder / "file" / "x", folder.path(), fs::path("/dev/null"),
        fs::path(folder.path().string() + "/"), folder / std::string(300, 'n')}) {
    const std::string message = message_of<Error>([&] { write_file(path, std::string_view("x")); });
    expect_contains(message, path.string());
  }
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"file"}));
  expect_contains(message_of<Error>([&] { write_file("", std::string_view("x")); }), "written");
}

TEST(File, AnOpenFileStaysTheOneThatWasOpened) {
  const TemporaryFolder folder;
  write_file(folder / "x", std::string_view("first"));
  const InputFile file(folder / "x");
  write_file(folder / "x", std::string_view("other content"));
  std::string bytes(5, ' ');
  file.read(0, bytes.data(), 5);
  EXPECT_EQ(bytes, "first");
  EXPECT_EQ(file.size(), 5U);
  file.read(3, bytes.data(), 2);
  EXPECT_EQ(bytes, "strst");
  const std::string message = message_of<InputError>([&] { file.read(3, bytes.data(), 3); });
  expect_contains(message, (folder / "x").string());
}

TEST(File, AnErrorWhileProducingLeavesThePreviousFile) {
  const TemporaryFolder folder;
  write_file(folder / "x", std::string_view("previous"));
  EXPECT_THROW(write_file(folder / "x",
                          [](const Append& append) {
                            append("half", 4);
                            throw std::logic_error("no more");
                          }),
               std::logic_error);
  EXPECT_EQ(read_file(folder / "x"), "previous");
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"x"}));
}

/// Writes 3 MB over `target` and expects an Error that names the file and the reason.
int fails_to_write(const fs::path& target, const std::string& reason) {
  const std::string bytes(3 << 20, 'n');
  const std::string message = message_of<Error>([&] { write_file(target, bytes); });
  const bool named = message.find(target.string()) != std::string::npos &&
                     message.find(reason) != std::string::npos;
  if (!named) std::fprintf(stderr, "message: %s\n", message.c_str());
  return named ? 0 : 1;
}

TEST(File, AWriteThatFailsHalfwayLeavesThePreviousFileAndNothingElse) {
  const TemporaryFolder folder;
  const std::string previous(1 << 20, 'p');
  write_file(folder / "x", previous);
  EXPECT_EQ(in_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit two_megabytes{2 << 20, 2 << 20};
              if (::setrlimit(RLIMIT_FSIZE, &two_megabytes) != 0) return 2;
              return fails_to_write(folder / "x", "File too large");
            }),
            0);
  EXPECT_TRUE(read_file(folder / "x") == previous);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"x"}));
}

TEST(File, AFullDiskLeavesThePreviousFileAndNothingElse) {
  constexpr int kNoMount = 77;
  const TemporaryFolder folder;
  const int status = in_child([&] {  // the disk is seen by the child alone and goes with it
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0) return kNoMount;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNoMount;
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=3m") != 0) return kNoMount;
    const std::string previous(1 << 20, 'p');
    write_file(folder / "x", previous);
    if (fails_to_write(folder / "x", "No space left on device") != 0) return 1;
    if (names_in(folder.path()) != std::set<std::string>{"x"}) return 2;
    return read_file(folder / "x") == previous ? 0 : 3;
  });
  if (status == kNoMount) GTEST_SKIP() << "no small file system may be mounted here";
  EXPECT_EQ(status, 0);
}

// What a checkpoint meets when a run is killed: here at twenty random moments of a 20 MB rewrite.
TEST(File, AKilledWriterLeavesTheOldOrTheNewFileWhole) {
  constexpr size_t kSize = 20 << 20;
  const TemporaryFolder folder;
  const fs::path target = folder / "x";
  write_file(target, std::string(kSize, 'a'));
  std::mt19937 random(7);
  size_t interrupted = 0;
  for (int kill = 0; kill < 20; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int letter = kill;; ++letter) {
          write_file(target, std::string(kSize, static_cast<char>('a' + letter % 26)));
        }
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 80));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    const std::string bytes = read_file(target);
    ASSERT_EQ(bytes.size(), kSize);
    ASSERT_EQ(bytes.find_first_not_of(bytes[0]), std::string::npos) << "two versions are mixed";
    interrupted += names_in(folder.path()).size() - 1;
  }
  EXPECT_GT(interrupted, 0U) << "no kill came in the middle of a write: this test showed nothing";
  write_file(target, std::string_view("after"));
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"x"}));
}

TEST(File, OnlyDeadWritersTemporariesAreRemoved) {
  const TemporaryFolder folder;
  for (const char* name : {"x.7.0.headroom-tmp", "y.7.0.headroom-tmp", "x.tmp", "x.7.0.tmp"}) {
    write_file(folder / name, std::string_view("someone's"));
  }
  write_file(folder / "x", std::string_view("mine"));
  EXPECT_EQ(names_in(folder.path()),
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
  EXPECT_EQ(names_in(folder.path()).size(), 2U) << "the rival's temporary must survive";
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
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"x"}));
}

}  // namespace
}  // namespace headroom
