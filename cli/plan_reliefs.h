// What `plan` says of ways to a smaller cache besides fewer KV heads: each by its formula.
#pragma once

#include <string>
#include <vector>

#include "cli/plan.h"

namespace headroom::cli {

/// Bytes over all layers, keys and values in the plan's type.
struct PlannedRelief {
  std::string name;         // "mla, kv_rank 64 and 16 rotated"
  int64_t token_bytes = 0;  // that a token adds at first; 0: it adds none
  int64_t cache_bytes = 0;  // held for the plan's context and batch
  int64_t bytes_read = 0;   // by a decoding step of the batch at the end of the context
  std::string explanation;  // "state of n_layer 6 * ..."
};

/// Latent attention and a window, as the config has them or as a sweep would take them, and two
/// that are not built: linear attention (arXiv 2006.16236), whose state of n_layer * n_head *
/// head_dim^2 numbers no token adds to, and block-sparse attention, which keeps all keys and reads
/// 16 blocks of 64 (NSA, arXiv 2502.11089, section 4.1).
std::vector<PlannedRelief> planned_reliefs(const Plan& plan);

}  // namespace headroom::cli
