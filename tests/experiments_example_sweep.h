// A made-up sweep whose figures the tests know: three seeds, n_kv_head 8, 4, 2, 1.
#pragma once

#include <cmath>

#include "experiments/result.h"

namespace headroom::experiments {

/// A run whose curve falls from about 3.3 to its best loss and ends 0.004 above it.
inline SeedRun example_run(uint64_t seed, double best, int64_t tokens) {
  constexpr int kPoints = 10;
  SeedRun run{.seed = seed,
              .best_loss = best,
              .best_step = 900,
              .final_loss = best + 0.004,
              .seconds = 600 + 10.0 * static_cast<double>(seed),
              .tokens = tokens,
              .curve = {}};
  for (int i = 1; i <= kPoints; ++i) {
    const double left = std::pow(1.0 - i / (kPoints - 1.0), 2);
    const double loss = i == kPoints ? run.final_loss : best + 1.6 * left;
    run.curve.push_back({.step = 100 * i, .tokens = tokens / kPoints * i, .val_loss = loss});
  }
  return run;
}

inline Row example_row(int64_t n_kv_head, const std::vector<double>& best_losses) {
  Row row;
  row.name = "n_kv_head " + std::to_string(n_kv_head);
  row.n_kv_head = n_kv_head;
  row.attention = n_kv_head == 8 ? "mha" : n_kv_head == 1 ? "mqa" : "gqa";
  row.n_layer = 6;
  row.n_ff = 1024;
  row.attention_params_per_layer = 131072 + 16384 * n_kv_head;
  row.params = 3162112 + 6 * row.attention_params_per_layer;
  row.cache_bytes_per_token = 6 * 2 * n_kv_head * 32 * 4;
  row.tokens = 4096000;
  for (size_t i = 0; i < best_losses.size(); ++i) {
    row.runs.push_back(example_run(i + 1, best_losses[i], row.tokens));
  }
  row.sample =
      "ROMEO:\nWhat, art thou mad? <i>I</i> & thou \"shall\" not speak,\nAnd let the crown of all "
      "my "
      "father's house\nBe set upon the morrow.\n\nJULIET:\nO, then I will not.";
  return row;
}

inline Sweep example_sweep() {
  Sweep sweep;
  sweep.rows = {example_row(8, {1.4881, 1.4902, 1.4866}), example_row(4, {1.4893, 1.4921, 1.4869}),
                example_row(2, {1.4899, 1.4893, 1.4911}), example_row(1, {1.5012, 1.5030, 1.4991})};
  sweep.fair = "same-shape";
  sweep.corpus = "Tiny Shakespeare";
  sweep.tiny_shakespeare = true;
  sweep.tokenizer = "char";
  sweep.seeds = {1, 2, 3};
  sweep.sample_note = "prompt \"ROMEO:\", temperature 0.8, top-k 50, seed 1";
  sweep.config_yaml =
      "model:\n  n_layer: 6\n  n_head: 8\n  n_embd: 256\n  block_size: 256\ntrain:\n  steps: "
      "1000\n  "
      "batch_size: 16  # sequences in one step, each block_size tokens long, drawn at random\n";
  sweep.machine = {.cpu = "Example CPU @ 2.0 GHz", .cores = 2, .threads = 2, .precision = "bf16"};
  sweep.started = "2025-01-31 12:00";
  sweep.seconds = 7300;
  sweep.finished = true;
  return sweep;
}

/// The same with the first seed only.
inline Sweep one_seed_sweep() {
  Sweep sweep = example_sweep();
  sweep.seeds = {1};
  for (Row& row : sweep.rows) row.runs.resize(1);
  return sweep;
}

/// The same stopped early: 8 has three runs, 4 has two, the others none.
inline Sweep unfinished_sweep() {
  Sweep sweep = example_sweep();
  sweep.rows[1].runs.resize(2);
  for (const size_t i : {2, 3}) {
    sweep.rows[i].runs.clear();
    sweep.rows[i].sample.clear();
  }
  sweep.finished = false;
  return sweep;
}

}  // namespace headroom::experiments
