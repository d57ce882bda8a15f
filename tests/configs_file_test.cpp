// CFG-07: files that are no config end quickly, in little memory and with a place. Each is read in
// a child process held to 1 GB and 10 s.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "configs/load.h"
#include "configs/source_text.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;  // its shadow alone is terabytes of address space, and it is slow
#else
constexpr bool kSanitized = false;
#endif

/// Reads `path` under the limits and exits as the program would: 0, or 2 with the message on
/// stderr.
[[noreturn]] void read_within_limits(const fs::path& path) {
  if (!kSanitized) {
    const rlimit memory{1'000'000'000, 1'000'000'000};
    const rlimit seconds{10, 10};  // of the processor, so that a busy machine fails no test
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CPU, &seconds);
  }
  alarm(100);
  try {
    load_config(path);
  } catch (const InputError& e) {
    std::fprintf(stderr, "%.500s\n", e.what());
    std::_Exit(2);
  }
  std::_Exit(0);
}

class ConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("headroom_configs_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void expect_refused(const std::string& bytes, const std::string& message) {
    const fs::path path = folder_ / "c.yaml";
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_EXIT(read_within_limits(path), testing::ExitedWithCode(2), message);
  }

  fs::path folder_;
};

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

TEST_F(ConfigFile, ThatCannotBeReadIsRefused) {
  EXPECT_EXIT(read_within_limits(folder_ / "none.yaml"), testing::ExitedWithCode(2),
              "none.yaml: no such config");
  EXPECT_EXIT(read_within_limits(folder_), testing::ExitedWithCode(2), "is a directory");
  EXPECT_EXIT(read_within_limits("/dev/zero"), testing::ExitedWithCode(2), "no regular file");
  expect_refused("", "c.yaml:1:1: is empty");
  expect_refused("# nothing here\n", "holds no YAML");
  expect_refused(repeated("#", (1 << 20) + 1), "has 1048577 bytes");
  if (geteuid() != 0) {  // root reads everything
    std::ofstream(folder_ / "locked.yaml") << "model: {}";
    fs::permissions(folder_ / "locked.yaml", fs::perms::none);
    EXPECT_EXIT(read_within_limits(folder_ / "locked.yaml"), testing::ExitedWithCode(2),
                "locked.yaml");
  }
}

TEST_F(ConfigFile, ThatIsNoTextIsRefusedWithLineAndColumn) {
  std::mt19937 random(1);
  std::string noise(1 << 20, '\0');
  for (char& c : noise) {
    c = static_cast<char>(random());
  }
  expect_refused(noise, "c.yaml:1:[0-9]+: ");
  expect_refused("model: {}\n# \x01", "c.yaml:2:3: control character 0x01");
  expect_refused("model: {}\n# \xC3\xA9\xED\xA0\x80", "c.yaml:2:4: byte 0xED is not valid UTF-8");
  expect_refused("# \xC0\xAF", "byte 0xC0 is not valid UTF-8");
  expect_refused("# \xF4\x90\x80\x80", "byte 0xF4 is not valid UTF-8");
  expect_refused("# \xE2\x82", "byte 0xE2 is not valid UTF-8");
}

TEST_F(ConfigFile, ThatIsNoConfigIsRefusedWithItsPlace) {
  expect_refused("- a\n- b\n", "c.yaml:1: the top level is a list");
  expect_refused("model\n", "c.yaml:1: the top level is model");
  expect_refused("model: [1]\n", "c.yaml:1: model is a list");
  expect_refused("model:\n\tn_layer: 6\n", "c.yaml:2:1: a tab");
  expect_refused("model:\n  n_layer: (((a\n  b (c\n   ))\n",
                 "c.yaml:2: model.n_layer is \\(\\(\\(a");
  expect_refused("a (b\n  c (d\n e) :\n", "c.yaml:3:5: not valid YAML");
  expect_refused("model: {n_layer: 3\n", "c.yaml:[0-9]+:[0-9]+: not valid YAML");
}

TEST_F(ConfigFile, ThatIsBuiltToHurtAParserEndsInTime) {
  expect_refused(repeated("[", 100000), "c.yaml:1:101: brackets are nested more than 100 deep");
  expect_refused("model: " + repeated("{a: ", 100000), "nested more than 100 deep");
  expect_refused(repeated("- ", 100000), "nested too deep");
  expect_refused(repeated("? ", 100000), "nested too deep");
  expect_refused("[" + repeated("a,", 500000) + "]", "the top level is a list");
  expect_refused("model:\n" + repeated("- \n", 300000), "model is a list");
  expect_refused(repeated("\"", 1000000), "YAML documents");
  expect_refused(repeated("*", 100000) + ": 1", "not valid YAML");
  expect_refused("model: &m\n  n_layer: *m\n", "model.n_layer is a map");
}

TEST_F(ConfigFile, MayHaveAByteOrderMarkAndCarriageReturns) {
  std::ofstream(folder_ / "dos.yaml", std::ios::binary) << "\xEF\xBB\xBFmodel:\r\n  n_layer: 3\r\n";
  EXPECT_EQ(load_config(folder_ / "dos.yaml").model.n_layer, 3);
}

TEST_F(ConfigFile, OfARunIsFoundFromTheFolderOrACheckpointInIt) {
  std::ofstream(folder_ / "config.yaml") << "model: {n_layer: 5}\n";
  EXPECT_EQ(load_run_config(folder_).model.n_layer, 5);
  std::ofstream(folder_ / "best.safetensors") << "x";
  EXPECT_EQ(load_run_config(folder_ / "best.safetensors").model.n_layer, 5);
}

}  // namespace
}  // namespace headroom::configs
