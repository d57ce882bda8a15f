// What the model needs to know of a cache: where its sequences stand, and how to add keys and
// values to them.
#pragma once

#include <cstdint>

#include "kernels/backend.h"

namespace headroom::nn {

class KVCache {
 public:
  KVCache() = default;
  KVCache(const KVCache&) = delete;
  KVCache& operator=(const KVCache&) = delete;
  virtual ~KVCache() = default;

  /// Sequences side by side.
  virtual int64_t batch() const = 0;
  /// Tokens that sequence b has seen: the position of its next one. It never shrinks when old keys
  /// are evicted.
  virtual int64_t position(int64_t sequence) const = 0;
  /// Which keys a query of a layer sees.
  virtual kernels::AttentionMask mask(int64_t layer) const = 0;
  /// Whether keys are stored turned by an orthogonal matrix, by which queries have to be turned
  /// too.
  virtual bool rotates_keys() const { return false; }
  /// Stores counts[b] new rows of k (B, T, K, Dk) and v (B, T, K, Dv) for each sequence b and shows
  /// everything that the new queries may see. Each layer keeps its own length, so nothing has to be
  /// advanced afterwards. counts is i32 (B), on the host.
  virtual kernels::KVView append(int64_t layer, const Tensor& k, const Tensor& v,
                                 const Tensor& counts) = 0;

  /// Refuses keys of other weights: the first call binds the cache to `version`, a later one with
  /// another throws.
  void bind(uint64_t version) {
    check(!bound_ || version_ == version,
          "[cache] the weights have changed since this cache was filled; start a new one");
    bound_ = true;
    version_ = version;
  }

 private:
  bool bound_ = false;
  uint64_t version_ = 0;
};

}  // namespace headroom::nn
