// A file is whole before and after whatever happens to its writer: errors, full disks, kills,
// rivals.
#include "tensor/file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <stdexcept>

#include "tensor/check.h"
#include "tests/run_program.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using testing::in_child;
using testing::TemporaryFolder;

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
  EXPECT_EQ(folder.names(), (std::set<std::string>{"x"}));
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
  EXPECT_EQ(folder.names(), (std::set<std::string>{"file"}));
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
  EXPECT_EQ(folder.names(), (std::set<std::string>{"x"}));
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
  EXPECT_EQ(folder.names(), (std::set<std::string>{"x"}));
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
    if (folder.names() != std::set<std::string>{"x"}) return 2;
    return read_file(folder / "x") == previous ? 0 : 3;
  });
  if (status == kNoMount) GTEST_SKIP() << "no small file system may be mounted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace headroom
