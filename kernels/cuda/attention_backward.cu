// The backward pass of attention: the weights of each tile are computed again from the saved
// log-sum-exp (FlashAttention-2, arXiv 2307.08691, algorithm 2). Every number of a gradient has one
// owner, which adds its parts in order, and no atomics: one kernel owns rows of dq, another owns
// keys, dk and dv, with the rows of all heads of a group.
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

template <class S, class C>
struct BackwardArguments {
  AttentionSizes p;
  StoredRows q, k, v, dout;
  const C *lse, *delta;  // (B, T, H); delta: the sums over dout * out
  C unit, scale;         // of scores, as exponents of 2 and in nats
  S *dq, *dk, *dv;       // absent: not wanted
  bool dq_add, dk_add, dv_add;
};

constexpr int kSumThreads = 128;

/// delta[row] = dout[row] . out[row], a warp to a row.
template <class S, class C>
__global__ void attention_delta(const S* out, const S* dout, int64_t rows, int width, C* delta) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + warp;
  if (row >= rows) {
    return;
  }
  C sum = 0;
  for (int i = lane; i < width; i += 32) {
    sum += widen<C>(out[row * width + i]) * widen<C>(dout[row * width + i]);
  }
  sum = join_warp(sum, Sum());
  if (lane == 0) {
    delta[row] = sum;
  }
}

/// A sink logit has the weight exp(logit - lse) and no value. A block sums a head's.
template <class C>
__global__ void attention_dsink(AttentionSizes p, const C* logits, const C* lse, const C* delta,
                                C* dsink, bool add) {
  const int head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  double sum = 0;
  for (int i = thread; i < p.batch * p.queries; i += kSumThreads) {
    if (i % p.queries < p.counts[i / p.queries]) {
      const int64_t at = static_cast<int64_t>(i) * p.heads + head;
      sum -= exp(static_cast<double>(logits[head]) - static_cast<double>(lse[at])) *
             static_cast<double>(delta[at]);
    }
  }
  sum = join_block(sum, shared_memory<double>(0, kSumThreads / kWarp), Sum());
  if (thread == 0) {
    dsink[head] = static_cast<C>(add ? static_cast<double>(dsink[head]) + sum : sum);
  }
}

/// A tile's weights from its scores, and in their place the gradients of the scores.
template <class Tile, class Weight>
__device__ void differentiate(Accumulator<Tile, kTile>& scores, Accumulator<Tile, kTile>& dweights,
                              const Weight& weight_and_delta) {
  HEADROOM_UNROLL
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    HEADROOM_UNROLL
    for (int j = 0; j < Accumulator<Tile, kTile>::kEach; ++j) {
      typename Tile::C delta = 0;
      const typename Tile::C weight = weight_and_delta(i, j, scores.values[i][j], delta);
      scores.values[i][j] = weight;
      dweights.values[i][j] = weight * (dweights.values[i][j] - delta);
    }
  }
}

/// One block: dq of 64 rows of a sequence and KV head, kDepth columns of it.
template <class Tile, class S>
__global__ void __launch_bounds__(kTileThreads)
    attention_dq(BackwardArguments<S, typename Tile::C> a) {
  using C = typename Tile::C;
  const AttentionSizes& p = a.p;
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int stretches = pieces_of(p.key_size, Tile::kDepth);
  const int kv_head = static_cast<int>(blockIdx.y) / stretches;
  const int column = static_cast<int>(blockIdx.y) % stretches * Tile::kDepth;
  const int b = static_cast<int>(blockIdx.z);
  const int rows = p.rows(b) - first_row < kTile ? p.rows(b) - first_row : kTile;

  SharedPieces pieces;
  Staged<Tile> queries(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> douts(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> keys(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> values(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  const Shared<C> exchange = pieces.take<C>(Tile::kExchange);

  Accumulator<Tile, Tile::kDepth> dq;
  int positions[Tile::kThreadRows];
  C lse[Tile::kThreadRows], delta[Tile::kThreadRows];
  HEADROOM_UNROLL
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    const bool real = Tile::row(i) < rows;
    const int64_t at = real ? p.index(b, kv_head, first_row + Tile::row(i)) : 0;
    positions[i] = p.position(b, first_row + Tile::row(i));
    lse[i] = real ? a.lse[at] * static_cast<C>(kLog2E) : C(0);
    delta[i] = real ? a.delta[at] : C(0);
  }

  if (rows > 0) {
    const int first = p.position(b, first_row), last = p.position(b, first_row + rows - 1);
    const auto row = [&](int r) {
      return r < rows ? p.index(b, kv_head, first_row + r) : int64_t(-1);
    };
    const Source q{a.q, 0, row}, dout{a.dout, 0, row};
    for (int n = 0;; ++n) {
      const int start = p.start(b, n);
      if (start < 0 || start > last) {
        break;
      }
      if (!p.some_see(first, last, start, start + kTile)) {
        continue;
      }
      const int there = p.lengths[b] - start, slot = p.slot(b, n);
      const auto key = [&p, there, slot, kv_head](int j) {
        return j < there ? p.vector(slot + j, kv_head) : int64_t(-1);
      };
      const Source k{a.k, n, key}, v{a.v, n, key};
      queries.load(q, 0);
      keys.load(k, 0);
      commit_copies();
      douts.load(dout, 0);
      values.load(v, 0);
      commit_copies();
      wait_for_copies<1>();
      Accumulator<Tile, kTile> scores, dscores;
      multiply_vectors(queries, q, keys, k, scores);
      wait_for_copies<0>();
      multiply_vectors(douts, dout, values, v, dscores);
      differentiate<Tile>(scores, dscores, [&](int i, int j, C score, C& its_delta) {
        its_delta = delta[i];
        const int at = start + Tile::column(j);
        return Tile::row(i) < rows && p.sees(positions[i], at) ? power_of_2(score * a.unit - lse[i])
                                                               : C(0);
      });
      __syncthreads();
      keys.load(k, column);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
      const int seen = last + 1 - start < kTile ? last + 1 - start : kTile;
      Tile::multiply_add_to(dscores, exchange, keys.memory(), seen, p.key_size - column, dq);
      __syncthreads();
    }
  }

  HEADROOM_UNROLL
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    const int row = first_row + Tile::row(i);
    if (row >= p.all_rows() || (row >= first_row + rows && a.dq_add)) {
      continue;
    }
    const int64_t at = p.index(b, kv_head, row);
    HEADROOM_UNROLL
    for (int j = 0; j < Accumulator<Tile, Tile::kDepth>::kEach; ++j) {
      const int c = column + Tile::column(j);
      if (c < p.key_size) {
        put(a.scale * dq.values[i][j], a.dq + at * p.key_size + c, a.dq_add);
      }
    }
  }
}

/// One block: dk and dv of the keys of a block of the table, for a KV head, kDepth columns of each.
template <class Tile, class S>
__global__ void __launch_bounds__(kTileThreads)
    attention_dkv(BackwardArguments<S, typename Tile::C> a) {
  using C = typename Tile::C;
  const AttentionSizes& p = a.p;
  const int n = static_cast<int>(blockIdx.x);  // the first keys are seen by the most rows
  const int widest = p.key_size > p.value_size ? p.key_size : p.value_size;
  const int stretches = pieces_of(widest, Tile::kDepth);
  const int kv_head = static_cast<int>(blockIdx.y) / stretches;
  const int column = static_cast<int>(blockIdx.y) % stretches * Tile::kDepth;
  const int b = static_cast<int>(blockIdx.z);
  // A table's end is an entry of -1, wherever it is; what follows means nothing.
  bool ended = false;
  for (int before = static_cast<int>(threadIdx.x) % 32; before <= n; before += 32) {
    ended = ended || p.start(b, before) < 0;
  }
  if (__any_sync(kWholeWarp, ended) != 0) {
    return;
  }
  const int start = p.start(b, n), slot = p.slot(b, n), there = p.lengths[b] - start;

  SharedPieces pieces;
  Staged<Tile> keys(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> values(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> queries(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> douts(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  const Shared<C> exchange = pieces.take<C>(Tile::kExchange);
  const Shared<C> lse = pieces.take<C>(kTile), delta = pieces.take<C>(kTile);

  const auto key = [&](int j) { return j < there ? p.vector(slot + j, kv_head) : int64_t(-1); };
  const Source k{a.k, 0, key}, v{a.v, 0, key};
  Accumulator<Tile, Tile::kDepth> dk, dv;
  for (int first_row = 0; first_row < p.rows(b); first_row += kTile) {
    const int rows = p.rows(b) - first_row < kTile ? p.rows(b) - first_row : kTile;
    const int first = p.position(b, first_row), last = p.position(b, first_row + rows - 1);
    if (!p.some_see(first, last, start, start + kTile)) {
      continue;
    }
    const auto row = [&p, b, kv_head, first_row, rows](int r) {
      return r < rows ? p.index(b, kv_head, first_row + r) : int64_t(-1);
    };
    const Source q{a.q, first_row, row}, dout{a.dout, first_row, row};
    keys.load(k, 0);
    queries.load(q, 0);
    commit_copies();
    values.load(v, 0);
    douts.load(dout, 0);
    commit_copies();
    for (int r = static_cast<int>(threadIdx.x); r < kTile; r += kTileThreads) {
      const int64_t at = row(r);
      lse[r] = at >= 0 ? a.lse[at] * static_cast<C>(kLog2E) : C(0);
      delta[r] = at >= 0 ? a.delta[at] : C(0);
    }
    wait_for_copies<1>();
    Accumulator<Tile, kTile> scores, dscores;  // (keys, rows)
    multiply_vectors(keys, k, queries, q, scores);
    wait_for_copies<0>();
    multiply_vectors(values, v, douts, dout, dscores);
    differentiate<Tile>(scores, dscores, [&](int i, int j, C score, C& its_delta) {
      const int r = Tile::column(j), at = start + Tile::row(i);
      its_delta = delta[r];
      const C its_lse = lse[r];
      return r < rows && p.sees(p.position(b, first_row + r), at)
                 ? power_of_2(score * a.unit - its_lse)
                 : C(0);
    });
    __syncthreads();
    queries.load(q, column);
    douts.load(dout, column);
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    Tile::multiply_add_to(scores, exchange, douts.memory(), rows, p.value_size - column, dv);
    Tile::multiply_add_to(dscores, exchange, queries.memory(), rows, p.key_size - column, dk);
    __syncthreads();
  }

  HEADROOM_UNROLL
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    if (Tile::row(i) >= there) {
      continue;
    }
    const int64_t at = key(Tile::row(i));
    HEADROOM_UNROLL
    for (int j = 0; j < Accumulator<Tile, Tile::kDepth>::kEach; ++j) {
      const int c = column + Tile::column(j);
      if (a.dk != nullptr && c < p.key_size) {
        put(a.scale * dk.values[i][j], a.dk + at * p.key_size + c, a.dk_add);
      }
      if (a.dv != nullptr && c < p.value_size) {
        put(dv.values[i][j], a.dv + at * p.value_size + c, a.dv_add);
      }
    }
  }
}

template <class Tile, class S>
void launch_backward(const BackwardArguments<S, typename Tile::C>& a) {
  constexpr size_t kStatistics = 2 * kTile * sizeof(typename Tile::C);
  const AttentionSizes& p = a.p;
  const auto grid = [&](int x, int width) {
    return dim3(static_cast<unsigned>(x),
                static_cast<unsigned>(p.kv_heads * pieces_of(width, Tile::kDepth)),
                static_cast<unsigned>(p.batch));
  };
  const size_t bytes = bytes_of_tiles<Tile>(4);
  if (a.dq != nullptr) {
    launch(attention_dq<Tile, S>, grid(pieces_of(p.all_rows(), kTile), p.key_size),
           dim3(kTileThreads), bytes, a);
  }
  if (a.dk != nullptr || a.dv != nullptr) {
    launch(attention_dkv<Tile, S>,
           grid(p.blocks, p.key_size > p.value_size ? p.key_size : p.value_size),
           dim3(kTileThreads), bytes + kStatistics, a);
  }
}

template <class S>
S* data_of(const Into& into) {
  return into.wanted() ? into.data<S>() : nullptr;
}

}  // namespace

void CudaBackend::attention_backward(const AttentionInputs& in, const Tensor& out,
                                     const Tensor& lse, const Tensor& dout, const Into& dq,
                                     const Into& dk, const Into& dv, const Into& dsink) {
  if (in.q.numel() > 0 && cudnn_takes(in) &&
      cudnn_attention_backward(in, out, lse, dout, dq, dk, dv, arithmetic_.deterministic)) {
    return;
  }
  // Slots that no table has, have no owner to write their 0.
  for (const Into* into : {&dk, &dv}) {
    if (into->wanted() && !into->add) {
      Tensor(into->tensor).zero();
    }
  }
  if (in.q.numel() == 0) {
    return;
  }
  for_type(in.q.dtype(), [&]<class S, class C>() {
    const AttentionSizes p(in);
    Tensor delta = Tensor::empty(lse.shape(), lse.dtype(), lse.device());
    const int64_t rows = lse.numel();
    constexpr int kRows = kSumThreads / 32;
    launch(attention_delta<S, C>, dim3(static_cast<unsigned>((rows + kRows - 1) / kRows)),
           dim3(kSumThreads), 0, out.data<S>(), dout.data<S>(), rows, p.value_size,
           delta.data<C>());
    const BackwardArguments<S, C> a{p,
                                    stored_rows(in.q),
                                    keys_of(in),
                                    values_of(in),
                                    stored_rows(dout),
                                    lse.data<C>(),
                                    std::as_const(delta).template data<C>(),
                                    static_cast<C>(in.scale * kLog2E),
                                    static_cast<C>(in.scale),
                                    data_of<S>(dq),
                                    data_of<S>(dk),
                                    data_of<S>(dv),
                                    dq.add,
                                    dk.add,
                                    dv.add};
    if constexpr (std::is_same_v<S, bf16>) {
      if (p.key_size <= 64 && p.value_size <= 64) {
        launch_backward<TensorTile<64>, S>(a);
      } else {
        launch_backward<TensorTile<128>, S>(a);
      }
    } else {
      launch_backward<PlainTile<C>, S>(a);
    }
    if (dsink.wanted()) {
      launch(attention_dsink<C>, dim3(static_cast<unsigned>(p.heads)), dim3(kSumThreads),
             kSumThreads / kWarp * sizeof(double), p, in.sink_logits.data<C>(), lse.data<C>(),
             a.delta, data_of<C>(dsink), dsink.add);
    }
  });
}

}  // namespace headroom::kernels::cuda
