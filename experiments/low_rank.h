// How many numbers per token a layer's keys and values need: the loss of a model whose keys before
// rotation and values, laid side by side, are projected on r directions before they enter the
// cache.
#pragma once

#include <vector>

#include "experiments/passages.h"

namespace headroom::experiments {

/// Orthogonal directions of each layer's rows (keys of all heads before rotation, then values): the
/// eigenvectors of their second moment about zero, by falling eigenvalue. Projecting on the first r
/// loses the least squared length that r directions can lose (Eckart and Young, 1936).
struct KVBasis {
  std::vector<Tensor> directions;           // by layer: (W, W), f32, a direction in each row
  std::vector<std::vector<double>> energy;  // by layer: the eigenvalues, summing to 1
};

KVBasis kv_basis(const nn::GPT& model, const Passages& training);

struct RankLoss {
  int64_t rank = 0;
  double energy = 0;  // share of the training text's squared length that is kept, mean of layers
  double loss = 0;    // nats per token
};

struct LowRank {
  int64_t width = 0;     // W = 2 K D, the numbers a layer stores of a token untruncated
  double full_loss = 0;  // the same passages untruncated
  std::vector<RankLoss> ranks;
};

/// Fits on `training` and scores on `held_out`, every layer truncated to the same rank. Throws
/// InputError for a rank outside 1 to W and for a model with latent attention.
LowRank low_rank(const nn::GPT& model, const Passages& training, const Passages& held_out,
                 const std::vector<int64_t>& ranks, const PartDone& part_done);

/// W divided by 1, 2, 3, 4, 6, 8, 12 and 16, each number above 0 once: 1536 / 6 and 1536 / 12 were
/// published.
std::vector<int64_t> usual_ranks(int64_t width);

/// What rank r saves and what it costs when a token is decoded, over all layers, in float32.
struct RankCost {
  int64_t cache_bytes = 0;  // per cached token: n_layer * r * 4
  int64_t basis_bytes = 0;  // read once per pass: n_layer * W * r * 4
  /// FLOP per cached key. full: scores and weighted values, 4 H D per layer. rebuilt: keys and
  /// values are first made from the r numbers, 2 r W more. absorbed: queries and outputs are taken
  /// through the basis instead, so that every head works on r numbers, 4 H r; it needs positions
  /// that don't turn keys.
  int64_t flop_full = 0, flop_rebuilt = 0, flop_absorbed = 0;
};
RankCost rank_cost(const configs::ModelConfig& model, int64_t rank);

}  // namespace headroom::experiments
