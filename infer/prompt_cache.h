// The cache of a prompt on disk, so that another process goes on from it instead of computing it
// again.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "infer/block_cache.h"
#include "infer/cache_spec.h"
#include "nn/gpt.h"
#include "tensor/safetensors.h"

namespace headroom::infer {

/// What a stored cache depends on beside the prompt.
struct PromptCacheKey {
  std::string model;  // of its config and weights: a fingerprint
  std::string cache;  // the spec, with types spelled out
};

/// `weights` is what GPT::store_weights() made of the matrices.
PromptCacheKey prompt_cache_key(const nn::GPT& model, const CacheSpec& spec, DType activations,
                                std::string_view weights);

/// A file with every layer's blocks of one sequence, as stored, its token ids, and its key.
class PromptCacheFile {
 public:
  /// Throws InputError naming the file when it is damaged, or holds the cache of other weights or
  /// of another spec than `key` has.
  PromptCacheFile(const std::filesystem::path& path, const PromptCacheKey& key);

  const std::vector<int32_t>& tokens() const { return tokens_; }

  /// Puts what the file has of the prompt's beginning into an empty sequence of the cache: of as
  /// many tokens as both have in common, but never the prompt's last, whose logits are wanted.
  /// Returns how many; 0, and nothing is put, where a window has dropped what the next token would
  /// see, or where the windows differ and had begun to drop keys.
  int64_t load(BlockCache& cache, int64_t sequence, std::span<const int32_t> prompt) const;

 private:
  std::vector<int64_t> read_starts(int64_t layer) const;

  SafetensorsFile file_;
  std::vector<int32_t> tokens_;
};

/// Writes one of a sequence that was given `tokens`. The file is replaced whole.
void save_prompt_cache(const std::filesystem::path& path, const PromptCacheKey& key,
                       BlockCache& cache, int64_t sequence, std::span<const int32_t> tokens);

}  // namespace headroom::infer
