// Memory needed against memory available.
#include "configs/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "configs/count.h"
#include "configs/size.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

namespace fs = std::filesystem;

/// The number in a one-number file of /sys, or the largest int64 if there is none ("max").
int64_t number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : Count::kMost;
}

/// The number after `name` in a file of "name number" lines, or `otherwise`.
int64_t entry_in(const fs::path& path, const std::string& name, int64_t otherwise) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    int64_t value = 0;
    if (words >> word >> value && word == name) {
      return value;
    }
  }
  return otherwise;
}

int64_t machine_memory() {
  const int64_t kib = entry_in("/proc/meminfo", "MemAvailable:", Count::kMost);
  return (Count(kib) * 1024).value();
}

/// What one control group leaves; pages of files it holds can be dropped, so they don't count as
/// used.
int64_t group_memory(const fs::path& group, const char* limit, const char* usage,
                     const char* file_pages) {
  const int64_t most = number_in(group / limit);
  const int64_t used = number_in(group / usage);
  if (most == Count::kMost || used == Count::kMost) {
    return Count::kMost;
  }
  return std::max<int64_t>(0, most - used + entry_in(group / "memory.stat", file_pages, 0));
}

/// The least that the process's control groups leave, up to the root, in both versions of the
/// hierarchy.
int64_t control_group_memory() {
  int64_t least = Count::kMost;
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers != "memory") {
      continue;
    }
    const fs::path root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (fs::path group = fs::path(line.substr(second + 1)).relative_path();;
         group = group.parent_path()) {
      const int64_t left =
          unified ? group_memory(root / group, "memory.max", "memory.current", "inactive_file")
                  : group_memory(root / group, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file");
      least = std::min(least, left);
      if (group.empty()) {
        break;
      }
    }
  }
  return least;
}

/// What `ulimit -v` leaves of the address space.
int64_t address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return Count::kMost;
  }
  const int64_t pages = number_in("/proc/self/statm");
  const Count used = Count(pages == Count::kMost ? 0 : pages) * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used.value());
}

/// "lower model.n_layer (now 64)" for the size whose return to its default saves most.
std::string advice_for_training(const Config& config, int64_t vocab_size,
                                int64_t bytes_per_element) {
  std::string advice = "lower train.batch_size";
  int64_t least = total_bytes(training_memory(config, vocab_size, bytes_per_element));
  const auto consider = [&](const char* key, int64_t now, int64_t usual, const auto& set) {
    Config smaller = config;
    int64_t vocab = vocab_size;
    set(smaller, vocab, std::min(now, usual));
    const int64_t bytes = total_bytes(training_memory(smaller, vocab, bytes_per_element));
    if (now > usual && bytes < least) {
      least = bytes;
      advice = fmt::format("lower {} (now {})", key, now);
    }
  };
  using C = Config;
  const Config usual;
  const ModelConfig& m = config.model;
  const ModelConfig& u = usual.model;
  consider("model.n_layer", m.n_layer, u.n_layer,
           [](C& c, int64_t&, int64_t n) { c.model.n_layer = n; });
  consider("model.block_size", m.block_size, u.block_size,
           [](C& c, int64_t&, int64_t n) { c.model.block_size = n; });
  consider("train.batch_size", config.train.batch_size, usual.train.batch_size,
           [](C& c, int64_t&, int64_t n) { c.train.batch_size = n; });
  consider("model.n_ff", m.given_n_ff, u.n_ff(),
           [](C& c, int64_t&, int64_t n) { c.model.given_n_ff = n; });
  consider("model.n_head", m.n_head, u.n_head, [](C& c, int64_t&, int64_t n) {
    c.model.given_head_dim = c.model.head_dim();
    c.model.n_head = n;
    c.model.n_kv_head = std::min(n, c.model.n_kv_head);
  });
  consider("model.head_dim", m.given_head_dim, u.head_dim(),
           [](C& c, int64_t&, int64_t n) { c.model.given_head_dim = n; });
  consider("model.n_embd", m.n_embd, u.n_embd,
           [](C& c, int64_t&, int64_t n) { c.model.n_embd = n; });
  consider("model.vocab_size", vocab_size, 1000, [](C&, int64_t& vocab, int64_t n) { vocab = n; });
  return advice;
}

}  // namespace

int64_t available_memory(Device device) {
  if (device != kCpu) {
    return Count::kMost;
  }
  return std::min({machine_memory(), control_group_memory(), address_space()});
}

std::vector<MemoryItem> training_memory(const Config& config, int64_t vocab_size,
                                        int64_t bytes_per_element) {
  const int64_t weights = weights_bytes(config.model, vocab_size);
  return {{"weights", weights},
          {"gradients", weights},
          {"optimizer", optimizer_bytes(config.model, vocab_size, config.train.optimizer)},
          {"activations", activation_bytes(config.model, vocab_size, config.model.block_size,
                                           config.train.batch_size, bytes_per_element)}};
}

int64_t total_bytes(std::span<const MemoryItem> items) {
  Count total;
  for (const MemoryItem& item : items) {
    total += item.bytes;
  }
  return total.value();
}

void require_memory(const std::string& task, std::span<const MemoryItem> items,
                    const std::string& advice, int64_t available) {
  const int64_t needed = total_bytes(items);
  if (needed <= available) {
    return;
  }
  std::string parts;
  for (const MemoryItem& item : items) {
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", item.what, human_bytes(item.bytes));
  }
  throw InputError(fmt::format("[memory] {} needs {} ({}), but {} are available: {}", task,
                               human_bytes(needed), parts, human_bytes(available), advice));
}

void require_training_memory(const Config& config, int64_t vocab_size, int64_t bytes_per_element,
                             int64_t available) {
  const std::vector<MemoryItem> items = training_memory(config, vocab_size, bytes_per_element);
  if (total_bytes(items) <= available) {
    return;
  }
  const int64_t cache = cache_bytes(config.model, config.model.block_size, 1, KVTypes());
  require_memory(
      "training", items,
      fmt::format("{}; the cache of one sequence of block_size would take {}",
                  advice_for_training(config, vocab_size, bytes_per_element), human_bytes(cache)),
      available);
}

void require_cache_memory(const ModelConfig& model, int64_t vocab_size, int64_t tokens,
                          int64_t batch, KVTypes types, const std::string& key, int64_t available) {
  const std::vector<MemoryItem> items = {{"weights", weights_bytes(model, vocab_size)},
                                         {"cache", cache_bytes(model, tokens, batch, types)}};
  require_memory(
      "generation", items,
      fmt::format("lower {}; the cache is {}", key, cache_formula(model, tokens, batch, types)),
      available);
}

}  // namespace headroom::configs
