// What a cache takes from the allocator, beside the formula: `headroom bench memory`.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/gpt.h"

namespace headroom::experiments {

struct MemoryBill {
  int64_t context = 0;
  int64_t allocated_bytes = 0;  // by which the allocator's bytes in use have grown
  int64_t formula_bytes = 0;    // configs::cache_bytes
};

/// Fills a cache with a prompt of each length and reads the allocator before there is a cache and
/// after the pass, when only the cache is left of it. `dtype` is the cache's and the activations'.
std::vector<MemoryBill> bench_memory(
    const nn::GPT& model, const std::vector<int64_t>& contexts, DType dtype,
    const std::function<void(int64_t done, int64_t all)>& progress);

/// The k and v of a projection that makes q, k and v at once, kept as views of its output, which
/// stays alive with all its columns, and kept as copies.
struct FusedView {
  int64_t view_bytes = 0, copy_bytes = 0;  // growth of the allocator's bytes in use
  int64_t formula_bytes = 0;               // of keys and values alone
};

/// Runs the projection of `tokens` tokens once per layer of `model`, in f32, and keeps the keys and
/// values of all of them.
FusedView hold_fused_projection(const configs::ModelConfig& model, int64_t tokens);

}  // namespace headroom::experiments
