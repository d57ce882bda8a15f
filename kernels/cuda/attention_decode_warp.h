// A warp's part of decode attention. Vectors go from memory to registers, eight numbers to a lane,
// whatever their type: numbers of 4 bits take no longer on the way than they must. A warp's lanes
// share a vector, or several; its scores are sums over lanes. Each warp keeps its own softmax over
// its 16 keys of every 64, so that warps meet only once, at the end.
#pragma once

#include "kernels/cuda/attention_tiles.h"

namespace headroom::kernels::cuda {

inline constexpr int kWarps = kTileThreads / kWarp, kWarpKeys = kTile / kWarps;
/// Numbers of a vector that one slice in each of 32 lanes holds.
inline constexpr int kSpan = 32 * kSlice;
/// Slices that a lane holds of a vector at most, and rows times slices, which its registers hold.
inline constexpr int kMostSlices = 3, kMostRows = 8;
template <class S, class C>
struct DecodeArguments {
  AttentionSizes p;
  StoredRows q, q_sink, k, v;
  const C* sink_logits;  // or absent
  C unit;                // of scores, as exponents of 2
  S* out;
  C* lse;
  // What each chunk leaves, for each row of (B, T, H): (rows, chunks, Dv) and (rows, chunks).
  C *part_out, *part_max, *part_sum;
};

/// Lanes that share a vector of `width` numbers: a power of 2.
__device__ inline int lanes_of(int width) {
  int lanes = 1;
  while (lanes < 32 && lanes * kSlice < width) {
    lanes *= 2;
  }
  return lanes;
}

/// Sums values[0 .. kLeft) over `lanes` neighbouring lanes. The sums get spread over the lanes: at
/// each step a lane hands half of its rows over, and takes the others', until it has one left; so
/// that 8 rows cost little more than one. Afterwards values[0 .. returned) are the sums of rows
/// `row` on, and of the lanes that have the same ones `first` is one.
template <int kLeft, int kRows, class C>
__device__ int sum_over_lanes(C (&values)[kRows], int lanes, int& row, bool& first) {
  if constexpr (kLeft > 1) {
    if (lanes == 1) {
      return kLeft;
    }
    const int step = lanes / 2;
    const bool upper = (static_cast<int>(threadIdx.x) & step) != 0;
    constexpr int kHalf = kLeft / 2;
    HEADROOM_UNROLL
    for (int i = 0; i < kHalf; ++i) {
      const C given = upper ? values[i] : values[i + kHalf];
      const C kept = upper ? values[i + kHalf] : values[i];
      values[i] = kept + __shfl_xor_sync(kWholeWarp, given, step);
    }
    row += upper ? kHalf : 0;
    return sum_over_lanes<kHalf>(values, step, row, first);
  } else {
    for (int step = lanes / 2; step > 0; step /= 2) {
      values[0] += __shfl_xor_sync(kWholeWarp, values[0], step);
      first = first && (static_cast<int>(threadIdx.x) & step) == 0;
    }
    return 1;
  }
}

/// Eight numbers of a lane for each row and slice.
template <class C, int kRows, int kSlices>
struct Slices {
  C x[kRows][kSlices][kSlice] = {};
};

/// The work of one warp of a team: its keys of a chunk.
template <class S, class C, int kRows, int kSlices>
class Decoder {
 public:
  __device__ Decoder(const DecodeArguments<S, C>& a, int b, int kv_head, int first_row, int rows,
                     Shared<C> scores, Shared<C> shrinks)
      : a_(a),
        b_(b),
        kv_head_(kv_head),
        first_row_(first_row),
        rows_(rows),
        warp_(static_cast<int>(threadIdx.x) / 32 % kWarps),
        lane_(static_cast<int>(threadIdx.x) % 32),
        key_lanes_(lanes_of(a.k.width)),
        value_lanes_(lanes_of(a.v.width)),
        scores_(scores),
        shrinks_(shrinks) {
    HEADROOM_UNROLL
    for (int i = 0; i < kHalfRows; ++i) {
      max_[i] = static_cast<C>(kHidden);
      sum_[i] = 0;
    }
  }

  /// Attends to blocks [begin, end) of the table.
  __device__ void attend(int begin, int end) {
    const AttentionSizes& p = a_.p;
    const int first = p.position(b_, first_row_), last = p.position(b_, first_row_ + rows_ - 1);
    load_queries(a_.q);
    for (int n = begin; n < end; ++n) {
      const int block = p.start(b_, n), start = block + warp_ * kWarpKeys;
      int stop = start + kWarpKeys;
      stop = stop <= last ? stop : last + 1;
      if (start >= stop || !p.some_see(first, last, start, stop)) {
        continue;  // the same for all lanes
      }
      const int64_t vector = p.vector(p.slot(b_, n) + warp_ * kWarpKeys, kv_head_);
      score(vector, 0, stop - start);
      if (a_.q_sink.values != nullptr && start < p.sinks) {
        load_queries(a_.q_sink);
        score(vector, 0, p.sinks < stop ? p.sinks - start : stop - start);
        load_queries(a_.q);
      }
      weigh(start, stop - start);
      add_values(vector, stop - start);
    }
  }

  /// Leaves the warp's maximum and sum of each row, and its outputs (kRows, Dv), in its own part of
  /// shared memory.
  __device__ void leave(Shared<C> max, Shared<C> sum, Shared<C> out) {
    HEADROOM_UNROLL
    for (int i = 0; i < kHalfRows; ++i) {
      const C total = sum_of_keys(sum_[i]);
      const int row = row_of(i);
      if (row < kRows && lane_ % kWarpKeys == 0) {
        max[row] = max_[i];
        sum[row] = total;
      }
    }
    HEADROOM_UNROLL
    for (int row = 0; row < kRows; ++row) {
      HEADROOM_UNROLL
      for (int s = 0; s < kSlices; ++s) {
        HEADROOM_UNROLL
        for (int e = 0; e < kSlice; ++e) {
          C x = out_.x[row][s][e];
          for (int lanes = value_lanes_; lanes < 32; lanes *= 2) {
            x += __shfl_xor_sync(kWholeWarp, x, lanes);
          }
          const int c = s * kSpan + lane_ * kSlice + e;
          if (lane_ < value_lanes_ && c < a_.v.width) {
            out[row * a_.v.width + c] = x;
          }
        }
      }
    }
  }

 private:
  // In the softmax half a warp has a row, a lane a key.
  static_assert(kWarpKeys == 16);
  static constexpr int kHalfRows = (kRows + 1) / 2;
  __device__ int row_of(int i) const { return 2 * i + lane_ / kWarpKeys; }
  static __device__ C sum_of_keys(C x) {
    for (int lanes = kWarpKeys / 2; lanes > 0; lanes /= 2) {
      x += __shfl_xor_sync(kWholeWarp, x, lanes);
    }
    return x;
  }
  static __device__ C largest_of_keys(C x) {
    for (int lanes = kWarpKeys / 2; lanes > 0; lanes /= 2) {
      const C other = __shfl_xor_sync(kWholeWarp, x, lanes);
      x = other > x ? other : x;
    }
    return x;
  }

  __device__ void load_queries(const StoredRows& from) {
    const Reader<kStorageOf<S>> reader{from};
    HEADROOM_UNROLL
    for (int row = 0; row < kRows; ++row) {
      HEADROOM_UNROLL
      for (int s = 0; s < kSlices; ++s) {
        const int i = s * kSpan + lane_ % key_lanes_ * kSlice;
        const int real = row < rows_ ? row : 0;
        reader.slice(a_.p.index(b_, kv_head_, first_row_ + real), i, q_.x[row][s]);
      }
    }
  }

  /// scores (kRows, 16) = products of all rows with the keys of vectors [first, first + keys).
  __device__ void score(int64_t first, int from, int keys) {
    __syncwarp();  // the last ones have been read
    with_reader<C>(a_.k, [&](const auto& reader) {
      for (int group = from; group < keys; group += 32 / key_lanes_) {
        const int j = group + lane_ / key_lanes_;
        C sums[kRows] = {};
        HEADROOM_UNROLL
        for (int s = 0; s < kSlices; ++s) {
          C key[kSlice];
          reader.slice(first + static_cast<int64_t>(j < keys ? j : keys - 1) * a_.p.kv_heads,
                       s * kSpan + lane_ % key_lanes_ * kSlice, key);
          HEADROOM_UNROLL
          for (int row = 0; row < kRows; ++row) {
            HEADROOM_UNROLL
            for (int e = 0; e < kSlice; ++e) {
              sums[row] += q_.x[row][s][e] * key[e];
            }
          }
        }
        int row = 0;
        bool mine = j < keys;
        const int left = sum_over_lanes<kRows>(sums, key_lanes_, row, mine);
        HEADROOM_UNROLL
        for (int i = 0; i < kRows; ++i) {
          if (mine && i < left) {
            scores_[(row + i) * kWarpKeys + j] = sums[i];
          }
        }
      }
    });
    __syncwarp();
  }

  /// Scores become weights, and shrinks what the rows' outputs so far are to be multiplied by.
  __device__ void weigh(int start, int keys) {
    const int j = lane_ % kWarpKeys;
    HEADROOM_UNROLL
    for (int i = 0; i < kHalfRows; ++i) {
      const int row = row_of(i);
      const bool some =
          row < rows_ && j < keys && a_.p.sees(a_.p.position(b_, first_row_ + row), start + j);
      C score = static_cast<C>(kHidden);
      if (some) {
        score = scores_[row * kWarpKeys + j];
        score *= a_.unit;
      }
      const C largest = largest_of_keys(score);
      const C new_max = largest > max_[i] ? largest : max_[i];
      const C shrink = power_of_2(max_[i] - new_max);
      const C weight = some ? power_of_2(score - new_max) : C(0);
      max_[i] = new_max;
      sum_[i] = sum_[i] * shrink + weight;
      if (row < kRows) {
        scores_[row * kWarpKeys + j] = weight;
        if (j == 0) {
          shrinks_[row] = shrink;
        }
      }
    }
    __syncwarp();
  }

  __device__ void add_values(int64_t first, int keys) {
    HEADROOM_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const C shrink = shrinks_[row];
      HEADROOM_UNROLL
      for (int s = 0; s < kSlices; ++s) {
        HEADROOM_UNROLL
        for (int e = 0; e < kSlice; ++e) {
          out_.x[row][s][e] *= shrink;
        }
      }
    }
    with_reader<C>(a_.v, [&](const auto& reader) {
      for (int j = lane_ / value_lanes_; j < keys; j += 32 / value_lanes_) {
        HEADROOM_UNROLL
        for (int s = 0; s < kSlices; ++s) {
          C value[kSlice];
          reader.slice(first + static_cast<int64_t>(j) * a_.p.kv_heads,
                       s * kSpan + lane_ % value_lanes_ * kSlice, value);
          HEADROOM_UNROLL
          for (int row = 0; row < kRows; ++row) {
            const C weight = scores_[row * kWarpKeys + j];
            HEADROOM_UNROLL
            for (int e = 0; e < kSlice; ++e) {
              out_.x[row][s][e] += weight * value[e];
            }
          }
        }
      }
    });
  }

  const DecodeArguments<S, C>& a_;
  int b_, kv_head_, first_row_, rows_, warp_, lane_, key_lanes_, value_lanes_;
  Shared<C> scores_;                   // (kRows, 16)
  Shared<C> shrinks_;                  // (kRows)
  C max_[kHalfRows], sum_[kHalfRows];  // of row_of(i); of the sum, this lane's part
  Slices<C, kRows, kSlices> q_, out_;
};

}  // namespace headroom::kernels::cuda
