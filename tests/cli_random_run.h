// A run folder made without training, for the commands that read one.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/print.h"
#include "nn/checkpoint.h"
#include "run_program.h"
#include "tensor/file.h"
#include "text/tokenizer.h"
#include "train/run_folder.h"

namespace headroom::testing {

/// A run whose weights are random and large: its texts are nonsense, but different from one
/// another.
class RandomRun {
 public:
  explicit RandomRun(configs::TokenizerKind kind = configs::TokenizerKind::char_level,
                     configs::Position position = configs::Position::rope, int64_t rows = 0) {
    configs::Config config;
    config.model.n_layer = 2;
    config.model.n_head = 4;
    config.model.n_kv_head = 2;
    config.model.n_embd = 32;
    config.model.given_n_ff = 64;
    config.model.block_size = 64;
    config.model.tie_embeddings = false;  // a tied head would repeat the last token for ever
    config.model.position = position;
    config.model.vocab_size = rows;
    config.data.tokenizer = kind;
    config.data.corpus = "corpus.txt";
    config.train.threads = 1;
    std::filesystem::create_directory(path());
    std::vector<std::string> notes;
    const auto tokenizer = text::make_tokenizer(name_of(kind), 0, "abc de.\n", notes);
    tokenizer->save(path() / train::kTokenizerFile);
    write_file(path() / train::kConfigFile, configs::to_yaml(config));
    const nn::GPT model(config.model, rows == 0 ? tokenizer->vocab_size() : rows,
                        nn::Scope{.seed = 1});
    for (const nn::Parameter& p : model.parameters()) {
      if (p.value.shape().rank() == 2) {
        Tensor value = p.value.value();
        fill_normal(value, RandomStream(1, p.name), 0.3);
      }
    }
    write_safetensors(path() / train::kLastFile, nn::parameter_tensors(model), {});
  }
  std::filesystem::path path() const { return folder_ / "run"; }
  std::filesystem::path file(const std::string& name, const std::string& content) const {
    write_file(folder_ / name, content);
    return folder_ / name;
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"generate", path().string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  RunResult generate(const std::vector<std::string>& more, const RunOptions& options = {}) const {
    return run_program(arguments(more), options);
  }
  /// What is printed by a run that must succeed.
  std::string text(const std::vector<std::string>& more) const {
    const RunResult result = generate(more);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  }
  nlohmann::json texts(std::vector<std::string> more) const {
    more.emplace_back("--json");
    return nlohmann::json::parse(text(more)).at("texts");
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace headroom::testing
