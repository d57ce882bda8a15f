// What attention's kernels share that knows no SIMD: the sizes of a call, which keys of a block a
// tile of queries sees, scratch memory, and the loop over work items.
#pragma once

#include <hwy/aligned_allocator.h>
#include <hwy/cache_control.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"

namespace headroom::kernels::cpu {

inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// The sizes and tables of a call. A "row" is one query of one head; the rows of a sequence and KV
/// head are numbered position by position, the G heads of the group side by side, so that a tile of
/// rows shares every key it loads.
struct AttentionSizes {
  explicit AttentionSizes(const AttentionInputs& in)
      : batch(in.q.dim(0)),
        queries(in.q.dim(1)),
        heads(in.q.dim(2)),
        kv_heads(in.kv.k.dim(1)),
        group(heads / kv_heads),
        key_size(in.q.dim(3)),
        value_size(in.kv.width_of_values()),
        blocks(in.kv.slots.dim(1)),
        slots(in.kv.slots.data<int32_t>()),
        starts(in.kv.starts.data<int32_t>()),
        lengths(in.kv.lengths.data<int32_t>()),
        counts(in.kv.counts.data<int32_t>()),
        mask(in.mask) {}

  /// Rows of sequence b that are real, for each KV head.
  int64_t rows(int64_t b) const { return counts[b] * group; }
  int64_t position(int64_t b, int64_t row) const { return lengths[b] - counts[b] + row / group; }
  /// Where the row is in a (B, T, H) tensor.
  int64_t index(int64_t b, int64_t kv_head, int64_t row) const {
    return (b * queries + row / group) * heads + kv_head * group + row % group;
  }
  /// Blocks of sequence b that hold a key.
  int64_t used_blocks(int64_t b) const {
    int64_t n = 0;
    while (n < blocks && starts[b * blocks + n] >= 0 && starts[b * blocks + n] < lengths[b]) {
      ++n;
    }
    return n;
  }

  /// The same of the sequence that has the most. How wide the tables are says nothing of the work.
  int64_t most_used_blocks() const {
    int64_t most = 0;
    for (int64_t b = 0; b < batch; ++b) {
      most = std::max(most, used_blocks(b));
    }
    return most;
  }

  int64_t batch, queries, heads, kv_heads, group, key_size, value_size, blocks;
  const int32_t *slots, *starts, *lengths, *counts;
  AttentionMask mask;
};

/// Consecutive keys of one block, all of which a tile may need.
struct KeyRange {
  int64_t begin = 0, end = 0;  // positions
  int64_t slot = 0;            // of `begin`
  bool masked = false;         // whether some query of the tile must not see some key of the range
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

/// The keys of block n that queries at positions first .. last see, cut to what any of them sees.
inline KeyRange visible_keys(const AttentionSizes& p, int64_t b, int64_t n, int64_t first,
                             int64_t last) {
  const int64_t start = p.starts[b * p.blocks + n];
  int64_t begin = start;
  int64_t end = std::min<int64_t>({start + KVView::kBlock, p.lengths[b], last + 1});
  bool masked = end - 1 > first;
  if (p.mask.window > 0) {
    const int64_t oldest = first - p.mask.window + 1;  // that the first query's window holds
    if (end <= oldest) {
      end = std::min(end, p.mask.sinks);
    } else if (begin >= p.mask.sinks) {
      begin = std::max(begin, oldest / 2 * 2);  // positions may be taken two by two
    }
    masked = masked || (begin <= last - p.mask.window && end > p.mask.sinks);
  }
  return {begin, end, p.slots[b * p.blocks + n] + begin - start, masked};
}

enum class ScratchUse : uint8_t { item, call };

/// Memory that a thread keeps between calls, one for each use; zeros when first handed out.
template <class C, ScratchUse kUse>
C* scratch(int64_t count) {
  thread_local hwy::AlignedFreeUniquePtr<C[]> memory;
  thread_local int64_t held = 0;
  if (count > held) {
    memory = hwy::AllocateAligned<C>(static_cast<size_t>(count));
    check(memory != nullptr, "[attention] no memory for {} bytes of scratch", count * sizeof(C));
    std::fill_n(memory.get(), count, C(0));
    held = count;
  }
  return memory.get();
}

/// Hands out consecutive pieces of a scratch, each a whole number of cache lines. With no memory it
/// only counts.
template <class C>
class Pieces {
 public:
  explicit Pieces(C* memory) : memory_(memory) {}
  C* take(int64_t count) {
    const int64_t at = used_;
    used_ += round_up(count, 64);
    return memory_ == nullptr ? nullptr : memory_ + at;
  }
  /// A piece of another type of the same size.
  template <class T>
  T* take_as(int64_t count) {
    static_assert(sizeof(T) == sizeof(C));
    return reinterpret_cast<T*>(take(count));
  }
  int64_t used() const { return used_; }

 private:
  C* memory_;
  int64_t used_ = 0;
};

/// Scores below which waking the other threads costs more than it saves.
inline constexpr int64_t kSerialScores = 8192;

/// A thread's items; whoever has none left takes from the others. On a cache line of its own.
struct alignas(64) ItemQueue {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

/// Calls f(item) for each of n items that share no output. A thread begins with the part of the
/// items that it has of the rows in other kernels (parallel.h), whose data its core still holds,
/// and helps the others when it is done.
template <class F>
void each_item(int64_t n, bool parallel, const F& f) {
  const auto threads = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), n));
  if (!parallel || threads <= 1 || omp_in_parallel() != 0) {
    for (int64_t i = 0; i < n; ++i) {
      f(i);
    }
    return;
  }
  std::vector<ItemQueue> queues(static_cast<size_t>(threads));
  for (int64_t t = 0; t < threads; ++t) {
    queues[static_cast<size_t>(t)].next = n * t / threads;
    queues[static_cast<size_t>(t)].end = n * (t + 1) / threads;
  }
  FirstException exception;
#pragma omp parallel num_threads(threads)
  {
    const auto me = static_cast<size_t>(omp_get_thread_num());
    for (size_t i = 0; i < queues.size(); ++i) {
      ItemQueue& queue = queues[(me + i) % queues.size()];
      for (int64_t item = queue.next++; item < queue.end; item = queue.next++) {
        exception.catch_from([&] { f(item); });
      }
    }
  }
  exception.rethrow();
}

}  // namespace headroom::kernels::cpu
