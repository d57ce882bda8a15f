// Whether a model with fewer KV heads quantises worse: what caches of 16, 8 and 4 bits lose against
// one in float32, keys and values apart, by n_kv_head.
#pragma once

#include <string>
#include <vector>

#include "configs/size.h"
#include "experiments/passages.h"

namespace headroom::experiments {

/// Mean and the half width of its 95 % interval over passages.
struct MeanOverPassages {
  double mean = 0, half_width = 0;
};

/// What a cache of these types loses, in nats per token, above one in float32 of the same model.
struct BitsLoss {
  int64_t n_kv_head = 0;
  configs::KVTypes types;
  std::vector<double> by_passage;  // mean over the models' seeds
};

/// The losses of one model for each pair of bf16, int8 and int4. Every model of a comparison must
/// be given the same passages.
std::vector<BitsLoss> bits_losses(const nn::GPT& model, const Passages& passages,
                                  const PartDone& part_done);

MeanOverPassages mean_over_passages(const std::vector<double>& by_passage);

/// "n_kv_head 2, int8 cache": how results name what was measured.
std::string bits_figure(int64_t n_kv_head, configs::KVTypes types);

/// The answer that the numbers support, in a sentence or two: the smallest and largest n_kv_head
/// compared, both halves of the cache in 4 bits, passage by passage.
std::string bits_answer(const std::vector<BitsLoss>& losses);

}  // namespace headroom::experiments
