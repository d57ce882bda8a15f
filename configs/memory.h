// Whether this machine can hold a model, asked before anything is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "configs/config.h"
#include "configs/size.h"

namespace headroom::configs {

/// Bytes this process can still get: the least of MemAvailable, what the limits of its control
/// groups leave, and what `ulimit -v` leaves. The largest int64 where none of them can be read, and
/// for a GPU, whose allocator says what it lacks when it lacks it.
int64_t available_memory(Device device = kCpu);

/// One part of what is about to be allocated.
struct MemoryItem {
  std::string what;  // "weights"
  int64_t bytes = 0;
};

/// What training `config` allocates, by formula (configs/size.h): weights, gradients, optimizer,
/// activations.
std::vector<MemoryItem> training_memory(const Config& config, int64_t vocab_size,
                                        int64_t bytes_per_element);
/// The sum of the items' bytes.
int64_t total_bytes(std::span<const MemoryItem> items);

/// Throws InputError when the items together exceed `available`: "[memory] TASK needs ...", the
/// bytes of each, the bytes available, then `advice` ("lower model.n_layer (now 64)").
void require_memory(const std::string& task, std::span<const MemoryItem> items,
                    const std::string& advice, int64_t available = available_memory());

/// require_memory for training `config` (training_memory). The message also gives the cache that
/// one sequence of block_size would take, and names the key that counts most: the one whose return
/// to its default would save most bytes.
void require_training_memory(const Config& config, int64_t vocab_size, int64_t bytes_per_element,
                             int64_t available = available_memory());

/// require_memory for generating: weights and a cache of `tokens` x `batch`. `key` is what the user
/// can lower ("--tokens").
void require_cache_memory(const ModelConfig& model, int64_t vocab_size, int64_t tokens,
                          int64_t batch, KVTypes types, const std::string& key,
                          int64_t available = available_memory());

}  // namespace headroom::configs
