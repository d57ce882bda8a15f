// What a sweep measured: filled by whoever trains, read by the table, the result files and the
// report. Losses are exact validation losses in nats per token; seconds are wall time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::experiments {

/// One evaluation on the whole validation split, after `step` steps and `tokens` training tokens.
struct LossPoint {
  int64_t step = 0;
  int64_t tokens = 0;
  double val_loss = 0;
};

/// One finished training run: a row's model with one seed.
struct SeedRun {
  uint64_t seed = 0;
  double best_loss = 0;  ///< not finite: the run diverged before its first evaluation
  int64_t best_step = 0;
  double final_loss = 0;  ///< not finite: the run diverged
  double seconds = 0;
  int64_t tokens = 0;            ///< training tokens seen
  std::vector<LossPoint> curve;  ///< by rising step
};

/// One variant of the model and its runs so far.
struct Row {
  std::string name;  ///< unique in the sweep
  int64_t n_kv_head = 0;
  std::string attention;  ///< "mha" (the reference row), "gqa", "mqa"; or a configs::Relief's name
  int64_t n_layer = 0;
  int64_t n_ff = 0;
  int64_t params = 0;
  int64_t attention_params_per_layer = 0;
  int64_t cache_bytes_per_token = 0;  ///< over all layers; with windows, of a full block_size
  int64_t tokens = 0;                 ///< training tokens one run is given
  std::vector<SeedRun> runs;          ///< finished ones only, in the order of Sweep::seeds
  std::string sample;  ///< text of the first seed's best model; empty until there is one
};

/// Whether the row is one of those that differ in n_kv_head alone.
inline bool differs_in_heads(const Row& row) {
  return row.attention == "mha" || row.attention == "gqa" || row.attention == "mqa";
}
/// What tells the row from the others, under a heading and by itself: "4" and "n_kv_head 4", or
/// "mla".
inline std::string label_of(const Row& row) {
  return differs_in_heads(row) ? std::to_string(row.n_kv_head) : row.attention;
}
inline std::string title_of(const Row& row) {
  return differs_in_heads(row) ? "n_kv_head " + std::to_string(row.n_kv_head) : row.attention;
}

struct Machine {
  std::string cpu;             ///< model name
  std::string device = "cpu";  ///< that trained the models, or "cuda:0"
  int cores = 0;
  int threads = 0;
  std::string precision;  ///< that the models were trained in: "fp32", "bf16"
};

/// The whole experiment, finished or not. A row that hasn't started has no runs.
struct Sweep {
  std::vector<Row> rows;
  std::string fair;               ///< "same-shape", "same-params" or "same-cache"
  std::string corpus;             ///< as people call it: "Tiny Shakespeare"
  bool tiny_shakespeare = false;  ///< by its content, not by its name
  std::string tokenizer;          ///< "char", "byte" or "bpe, 512 tokens"
  std::string cache_dtype = "f32";
  std::vector<uint64_t> seeds;
  std::string sample_note;  ///< how the samples were drawn: prompt, temperature, seed
  std::string config_yaml;  ///< in full, as used
  Machine machine;
  std::string started;  ///< local date and time, for people
  double seconds = 0;   ///< wall time over all sessions of the sweep
  bool finished = false;
};

}  // namespace headroom::experiments
