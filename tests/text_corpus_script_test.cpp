// scripts/corpus.sh, with stand-ins for the network: it prints one path, repeats safely, and leaves
// no part of a file.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>

#include "tensor/file.h"
#include "tests/run_program.h"
#include "tests/text_support.h"
#include "text/corpus.h"

namespace headroom::text {
namespace {

constexpr std::string_view kSha256OfAbc =  // FIPS 180-2, appendix B.1
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr std::string_view kVerses = "#!/bin/sh\nseq 31102\n";

class CorpusScript : public ::testing::Test {
 protected:
  struct Outcome {
    int status = -1;
    std::string out, err;
  };

  // A copy of the script in a folder of its own that expects "abc" as its download and waits a
  // second.
  void SetUp() override {
    std::string script = read_file(HEADROOM_SOURCE_DIR "/scripts/corpus.sh");
    replace_line(script, "sha256=", "sha256=" + std::string(kSha256OfAbc));
    replace_line(script, "network_seconds=", "network_seconds=1");
    std::filesystem::create_directories(folder_ / "scripts");
    std::filesystem::create_directories(folder_ / "bin");
    executable("scripts/corpus.sh", script);
  }

  static void replace_line(std::string& script, const std::string& begin, const std::string& line) {
    const size_t at = script.find("\n" + begin);
    ASSERT_NE(at, std::string::npos);
    script.replace(at + 1, script.find('\n', at + 1) - at - 1, line);
  }

  void executable(const std::string& name, std::string_view content) {
    write_file(folder_ / name, content);
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }

  // Stand-in for curl.
  void curl(const std::string& body) { executable("bin/curl", "#!/bin/sh\n" + body + "\n"); }

  Outcome run(const std::string& corpus = "") {
    const std::string folder = folder_.path().string();
    const std::string command = "cd '" + folder + "' && CORPUS='" + corpus + "' PATH='" + folder +
                                "/bin':\"$PATH\" scripts/corpus.sh >out 2>err";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), read_file(folder_ / "out"), read_file(folder_ / "err")};
  }

  std::vector<std::string> data_files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "data")) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  headroom::testing::TemporaryFolder folder_;
};

const std::string kSave = "while [ $1 != --output ]; do shift; done; printf ";

TEST_F(CorpusScript, DownloadsOnceAndPrintsOnlyThePath) {
  curl(kSave + "abc >$2");
  const Outcome first = run();
  EXPECT_EQ(first.status, 0);
  EXPECT_EQ(first.out, "data/tinyshakespeare.txt\n");
  EXPECT_EQ(read_file(folder_ / "data/tinyshakespeare.txt"), "abc");
  EXPECT_EQ(data_files(), (std::vector<std::string>{"tinyshakespeare.txt"}));
  curl("echo called again >&2; exit 1");
  const Outcome second = run();
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err, "");
}

TEST_F(CorpusScript, ReplacesADamagedFile) {
  std::filesystem::create_directories(folder_ / "data");
  write_file(folder_ / "data/tinyshakespeare.txt", "ab");
  curl(kSave + "abc >$2");
  EXPECT_EQ(run().out, "data/tinyshakespeare.txt\n");
  EXPECT_EQ(read_file(folder_ / "data/tinyshakespeare.txt"), "abc");
}

TEST_F(CorpusScript, TakesTheBibleWhenTheDownloadIsSomethingElse) {
  curl(kSave + "'log in first' >$2");
  executable("bin/bible", kVerses);
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "data/king-james-bible.txt\n");
  EXPECT_TRUE(holds(outcome.err, {"its sha256 differs"}));
  EXPECT_EQ(data_files(), (std::vector<std::string>{"king-james-bible.txt"}));
}

TEST_F(CorpusScript, GivesUpOnAStalledNetworkAndStaysWithItsChoice) {
  curl("exec sleep 60");
  executable("bin/bible", kVerses);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(run().out, "data/king-james-bible.txt\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  curl(kSave + "abc >$2");
  const Outcome second = run();
  EXPECT_EQ(second.out, "data/king-james-bible.txt\n");
  EXPECT_TRUE(holds(second.err, {"remove data/king-james-bible.txt"}));
}

TEST_F(CorpusScript, LeavesNothingWhenThereIsNoCorpus) {
  curl("exit 6");
  executable("bin/bible", "#!/bin/sh\necho one verse\n");
  const Outcome outcome = run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_TRUE(holds(outcome.err, {"31102 verses"}));
  EXPECT_EQ(data_files().size(), 0u);
}

TEST_F(CorpusScript, TakesTheUsersOwnText) {
  curl("exit 6");
  write_file(folder_ / "my text.txt", "words");
  EXPECT_EQ(run("my text.txt").out, "my text.txt\n");
  const Outcome absent = run("absent.txt");
  EXPECT_EQ(absent.status, 2);
  EXPECT_EQ(absent.out, "");
  EXPECT_TRUE(holds(absent.err, {"CORPUS=absent.txt is not a file"}));
  write_file(folder_ / "empty.txt", "");
  EXPECT_EQ(run("empty.txt").status, 2);
}

TEST_F(CorpusScript, GivesDebiansBibleItsName) {
  if (!std::filesystem::exists("/usr/bin/bible")) GTEST_SKIP() << "bible-kjv isn't installed";
  curl("exit 6");
  ASSERT_EQ(run().out, "data/king-james-bible.txt\n");
  const Corpus corpus = load_corpus(folder_ / "data/king-james-bible.txt", 0.1);
  EXPECT_EQ(corpus.name, "King James Bible");
  EXPECT_TRUE(
      corpus.text.starts_with("Ge1:1 In the beginning God created the heaven and the earth.\n"));
  EXPECT_TRUE(corpus.text.ends_with("our Lord Jesus Christ be with you all. Amen.\n"));
  EXPECT_EQ(corpus.notes.size(), 0u);
}

}  // namespace
}  // namespace headroom::text
