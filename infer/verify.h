// Proof on a given model that a cache changes nothing, or no more than its storage must: cached
// against uncached logits, for every way of cutting the sequences into pieces, in float32 and, with
// the same weights and kernels, in float64.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "infer/cache_spec.h"
#include "infer/forward.h"

namespace headroom::infer {

/// Largest |cached - uncached| allowed, as a share of the largest |logit|. The one for float64
/// catches every error of logic; the one for float32 leaves room for sums in another order.
inline constexpr double kBoundF32 = 1e-5;
inline constexpr double kBoundF64 = 1e-12;

/// Makes the cache to be checked: for `batch` sequences of at most `tokens` tokens, of which at
/// most `chunk` arrive at once.
using MakeCache = std::function<std::unique_ptr<nn::KVCache>(const nn::GPT& model, int64_t batch,
                                                             int64_t tokens, int64_t chunk)>;

/// The BlockCache that `spec` names.
MakeCache block_cache_maker(const CacheSpec& spec);

/// Largest |cached - uncached| that a storage type may cause, as a share of the largest |logit|:
/// the worse of the key's and the value's. f32 rounds only under a model in float64.
double storage_tolerance(configs::KVTypes types);

struct CacheUnderTest {
  std::string name;
  kernels::AttentionMask mask;  // what the uncached pass applies
  MakeCache make;
  /// Of a cache that rounds what it stores: storage_tolerance(). 0: it must change nothing.
  double tolerance = 0;
};

/// The BlockCache that `spec` names, under a model in float32.
CacheUnderTest cache_under_test(const CacheSpec& spec);

/// What the logits through a cache were compared with.
enum class Against { uncached, at_once };

/// One comparison: `chunk` is "all", a number of tokens, or "16, then 1".
struct CacheCheck {
  std::string cache, chunk;
  Against against = Against::uncached;  // at_once: the same cache, given all tokens in one piece
  int64_t batch = 0;
  DType dtype = DType::f32;
  double max_abs_diff = 0, max_abs_logit = 0;
  double greedy_agreement = 0;  // share of positions with the same largest logit, ties left out
  double kl_nats = 0;           // mean over positions of KL(reference || cached)
  int64_t ties = 0;             // positions whose two largest logits are closer than bound * max
  double bound = 0;             // on max_abs_diff / max_abs_logit
  bool ok = false;
};

/// Compares all logits of `sequences` (one: a batch of 1; several: a ragged batch) through the
/// cache, in chunks of all, 1, 3, 16 and, under a window, 64 tokens, with those of the uncached
/// pass. A float32 row is ok when it keeps its bound, agrees in every largest logit but for ties,
/// and is no further from the float64 logits than twice the uncached pass is. `model` is in
/// float32.
///
/// A cache that rounds is compared with the uncached pass in float32, within its tolerance; and in
/// float64, where two ways of cutting round the same numbers, each way with the same cache at once,
/// within kBoundF64: whatever rounding costs, the pieces must fit together exactly.
std::vector<CacheCheck> verify_cache(const nn::GPT& model, const nn::GPT& model_f64,
                                     const CacheUnderTest& cache, const Sequences& sequences);

/// The published setting: a prompt of 16 tokens at once, then 32 one by one.
inline constexpr int64_t kPublishedPrefill = 16, kPublishedDecode = 32;
std::vector<CacheCheck> verify_published_setting(const nn::GPT& model, const nn::GPT& model_f64,
                                                 const CacheUnderTest& cache,
                                                 const std::vector<int32_t>& tokens);

/// The same model in float64, weights copied.
std::unique_ptr<nn::GPT> to_f64(const nn::GPT& model);

/// `count` tokens, each equally likely, from the stream of (seed, row).
std::vector<int32_t> synthetic_tokens(int64_t count, int64_t vocab_size, uint64_t seed,
                                      uint64_t row);

}  // namespace headroom::infer
