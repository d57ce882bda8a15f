// Attention of few queries over a long cache, which costs what reading the cache costs (Flash-
// Decoding, Dao et al. 2023): the cache is cut into chunks, so that there is work for every
// multiprocessor, and a block attends to one chunk with all query heads of a KV head, so that each
// byte comes from memory once: where one team of warps is too small for them, what another team or
// round reads again is in the multiprocessor's cache. A second kernel adds the chunks, in order.
#include "kernels/cuda/attention.h"

#include <algorithm>

#include "kernels/cuda/attention_decode_warp.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

/// Teams that fill a GPU, and the fewest blocks of keys worth a block of threads.
constexpr int kWantedTeams = 512, kKeyBlocksOfChunk = 2;
/// Teams of a block at most: their rows' results are in shared memory, all at once.
template <class C>
constexpr int kMostTeams = sizeof(C) == sizeof(double) ? 1 : 2;
/// More queries than this, or a shorter table, are better off with tiles.
constexpr int kMostQueries = 8, kLongTable = 16;

/// Divides a row by its sum, with the learned sink logit in it, and writes number c.
template <class S, class C>
__device__ void finish(const DecodeArguments<S, C>& a, int64_t at, int c, C max, C sum, C out) {
  if (a.sink_logits != nullptr) {
    const C logit = a.sink_logits[at % a.p.heads] * static_cast<C>(kLog2E);
    const C new_max = logit > max ? logit : max;
    const C shrink = power_of_2(max - new_max);
    sum = sum * shrink + power_of_2(logit - new_max);
    out *= shrink;
    max = new_max;
  }
  a.out[at * a.p.value_size + c] = narrow<S>(out / sum);
  if (c == 0) {
    a.lse[at] = max * static_cast<C>(kLn2) + logarithm(sum);
  }
}

/// Blocks of the table of sequence b that hold keys; for whole warps.
__device__ int used_blocks(const AttentionSizes& p, int b) {
  for (int first = 0;; first += 32) {
    const int n = first + static_cast<int>(threadIdx.x) % 32;
    const unsigned ended = __ballot_sync(kWholeWarp, p.start(b, n) < 0);
    if (ended != 0) {
      return first + __ffs(static_cast<int>(ended)) - 1;
    }
  }
}

/// What a block's warps leave of their rows: row r of warp w is number w * kRows + r.
template <class C>
struct WarpParts {
  Shared<C> max, sum, out;  // one each, and Dv
};

/// Adds what the warps of each row's team left of rows [first_row, first_row + rows).
template <int kRows, class S, class C>
__device__ void add_warps(const DecodeArguments<S, C>& a, const WarpParts<C>& parts, int first_row,
                          int rows) {
  const int chunk = static_cast<int>(blockIdx.x), chunks = static_cast<int>(gridDim.x);
  const int width = a.p.value_size;
  for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += static_cast<int>(blockDim.x)) {
    const int row = i / width, c = i % width;
    const int part = row / kRows * kWarps * kRows + row % kRows;  // of the team's first warp
    C largest = parts.max[part];
    for (int w = 1; w < kWarps; ++w) {
      const C other = parts.max[part + w * kRows];
      largest = other > largest ? other : largest;
    }
    C total = 0, x = 0;
    for (int w = 0; w < kWarps; ++w) {
      const C factor = power_of_2(parts.max[part + w * kRows] - largest);
      total += factor * parts.sum[part + w * kRows];
      x += factor * parts.out[(part + w * kRows) * width + c];
    }
    const int64_t at =
        a.p.index(static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y), first_row + row);
    if (chunks == 1) {
      finish(a, at, c, largest, total, x);
      continue;
    }
    a.part_out[(at * chunks + chunk) * width + c] = x;
    if (c == 0) {
      a.part_max[at * chunks + chunk] = largest;
      a.part_sum[at * chunks + chunk] = total;
    }
  }
}

/// Zeros for the rows beyond those of sequence b.
template <class S, class C>
__device__ void clear_rest(const DecodeArguments<S, C>& a, int b, int kv_head) {
  const AttentionSizes& p = a.p;
  const int width = p.value_size, end = p.all_rows() * width;
  for (int i = p.rows(b) * width + static_cast<int>(threadIdx.x); i < end;
       i += static_cast<int>(blockDim.x)) {
    const int64_t at = p.index(b, kv_head, i / width);
    a.out[at * width + i % width] = narrow<S>(C(0));
    if (i % width == 0) {
      a.lse[at] = 0;
    }
  }
}

/// One block of threads: a chunk of the cache and all rows of a sequence and KV head, kRows to each
/// of its teams of four warps. If there are more it goes over the chunk again.
template <class S, class C, int kRows, int kSlices>
__global__ void __launch_bounds__(kMostTeams<C>* kTileThreads)
    attention_chunk(DecodeArguments<S, C> a) {
  const AttentionSizes& p = a.p;
  const int chunk = static_cast<int>(blockIdx.x), chunks = static_cast<int>(gridDim.x);
  const int kv_head = static_cast<int>(blockIdx.y), b = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x) / 32, team = warp / kWarps;
  const int teams = static_cast<int>(blockDim.x) / kTileThreads, parts = teams * kWarps * kRows;
  SharedPieces pieces;
  const WarpParts<C> left{pieces.take<C>(parts), pieces.take<C>(parts),
                          pieces.take<C>(parts * p.value_size)};
  const Shared<C> scores = pieces.take<C>(parts * kWarpKeys), shrinks = pieces.take<C>(parts);
  const int rows = p.rows(b), used = rows > 0 ? used_blocks(p, b) : 0;

  for (int first = 0; first < rows; first += teams * kRows) {
    const int own = first + team * kRows;
    if (own < rows) {
      Decoder<S, C, kRows, kSlices> decoder(
          a, b, kv_head, own, own + kRows < rows ? kRows : rows - own,
          scores + warp * kRows * kWarpKeys, shrinks + warp * kRows);
      decoder.attend(used * chunk / chunks, used * (chunk + 1) / chunks);
      decoder.leave(left.max + warp * kRows, left.sum + warp * kRows,
                    left.out + warp * kRows * p.value_size);
    }
    __syncthreads();
    const int rest = rows - first;
    add_warps<kRows>(a, left, first, rest < teams * kRows ? rest : teams * kRows);
    __syncthreads();
  }
  if (chunks == 1) {
    clear_rest(a, b, kv_head);
  }
}

/// Adds the chunks of a row, a block of threads to a row.
template <class S, class C>
__global__ void attention_combine(DecodeArguments<S, C> a, int chunks) {
  const AttentionSizes& p = a.p;
  const int64_t at = blockIdx.x;
  const int64_t query = at / p.heads;
  const bool real = query % p.queries < p.counts[query / p.queries];
  C largest = static_cast<C>(kHidden);
  for (int chunk = 0; chunk < chunks && real; ++chunk) {
    const C other = a.part_max[at * chunks + chunk];
    largest = other > largest ? other : largest;
  }
  for (int c = static_cast<int>(threadIdx.x); c < p.value_size; c += static_cast<int>(blockDim.x)) {
    if (!real) {
      a.out[at * p.value_size + c] = narrow<S>(C(0));
      if (c == 0) {
        a.lse[at] = 0;
      }
      continue;
    }
    C total = 0, x = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const C factor = power_of_2(a.part_max[at * chunks + chunk] - largest);
      total += factor * a.part_sum[at * chunks + chunk];
      x += factor * a.part_out[(at * chunks + chunk) * p.value_size + c];
    }
    finish(a, at, c, largest, total, x);
  }
}

/// From shapes alone: a captured step is replayed while the cache fills. A chunk that blocks go
/// over again is as short as can be, and still in their multiprocessor's cache.
int chunks_of(const AttentionSizes& p, int teams, bool again) {
  const int most = pieces_of(p.blocks, kKeyBlocksOfChunk);
  const int wanted = again ? most : pieces_of(kWantedTeams, p.batch * p.kv_heads * teams);
  return std::max(1, std::min(wanted, most));
}

template <class S, class C, int kRows, int kSlices>
void launch_decode(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  const AttentionSizes p(in);
  const int tiles = pieces_of(p.all_rows(), kRows);
  const int teams = tiles < kMostTeams<C> ? tiles : kMostTeams<C>;
  const int chunks = chunks_of(p, teams, tiles > teams);
  const int64_t rows = lse.numel(), parts = chunks > 1 ? rows * chunks : 0;
  Tensor part_out = Tensor::empty({parts, p.value_size}, lse.dtype(), lse.device());
  Tensor part_max = Tensor::empty({parts}, lse.dtype(), lse.device());
  Tensor part_sum = Tensor::empty({parts}, lse.dtype(), lse.device());
  const DecodeArguments<S, C> arguments{
      p,
      stored_rows(in.q),
      in.q_sink.defined() ? stored_rows(in.q_sink) : StoredRows{},
      keys_of(in),
      values_of(in),
      in.sink_logits.defined() ? in.sink_logits.data<C>() : nullptr,
      static_cast<C>(in.scale * kLog2E),
      out.data<S>(),
      lse.data<C>(),
      part_out.data<C>(),
      part_max.data<C>(),
      part_sum.data<C>()};
  const size_t numbers =
      static_cast<size_t>(teams * kWarps * kRows * (3 + kWarpKeys + p.value_size));
  launch(attention_chunk<S, C, kRows, kSlices>,
         dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(p.kv_heads),
              static_cast<unsigned>(p.batch)),
         dim3(static_cast<unsigned>(teams * kTileThreads)), numbers * sizeof(C) + 5 * 16,
         arguments);
  if (chunks > 1) {
    launch(attention_combine<S, C>, dim3(static_cast<unsigned>(rows)), dim3(128), 0, arguments,
           chunks);
  }
}

}  // namespace

bool decodes(const AttentionInputs& in) {
  const int64_t queries = in.q.dim(1);
  const int64_t widest =
      in.q.dim(3) > in.kv.width_of_values() ? in.q.dim(3) : in.kv.width_of_values();
  return widest <= kMostSlices * kSpan &&
         (queries == 1 || (queries <= kMostQueries && in.kv.slots.dim(1) >= kLongTable));
}

void attention_decode(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  const bool wide = in.q.dim(3) > kSpan || in.kv.width_of_values() > kSpan;
  const int64_t rows = in.q.dim(1) * in.q.dim(2) / in.kv.k.dim(1);
  for_type(in.q.dtype(), [&]<class S, class C>() {
    if (wide && rows == 1) {
      launch_decode<S, C, 1, kMostSlices>(in, out, lse);
    } else if (wide) {
      launch_decode<S, C, kMostRows / kMostSlices, kMostSlices>(in, out, lse);
    } else if (rows == 1) {
      launch_decode<S, C, 1, 1>(in, out, lse);
    } else if (rows == 2) {
      launch_decode<S, C, 2, 1>(in, out, lse);
    } else if (rows <= 4) {
      launch_decode<S, C, 4, 1>(in, out, lse);
    } else {
      launch_decode<S, C, kMostRows, 1>(in, out, lse);
    }
  });
}

}  // namespace headroom::kernels::cuda
