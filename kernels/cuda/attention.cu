// The forward pass of attention (FlashAttention-2, arXiv 2307.08691): a block keeps 64 rows and
// runs over the keys that they see, tile by tile, with the softmax's maximum and sum kept right as
// it goes. See attention_tiles.h for tiles and their products.
#include "kernels/cuda/attention.h"

#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cudnn_attention.h"
#include "kernels/cuda/launch.h"

namespace headroom::kernels::cuda {

namespace {

template <class S, class C>
struct ForwardArguments {
  AttentionSizes p;
  StoredRows q, q_sink;  // (B, T, H) vectors; q_sink's values may be absent
  StoredRows k, v;       // (slots, K) vectors
  const C* sink_logits;  // or absent
  C unit;                // what a score of 1 means as an exponent of 2
  S* out;
  C* lse;
};

/// Keys of one block of the table that one product with queries is for.
struct Segment {
  int block = -1;                     // -1: there is none
  int start = 0, begin = 0, end = 0;  // positions: of the block's first key, of the keys meant
  bool sink = false;                  // whether the queries are those that sink keys see
  bool masked = false;                // whether some key is hidden from some query
};

/// The segments that queries at positions first .. last see, in order. Where sink keys see other
/// queries, a block that holds both kinds is two of them.
class Segments {
 public:
  __device__ Segments(const AttentionSizes& p, int b, int first, int last, bool apart)
      : p_(p), b_(b), first_(first), last_(last), apart_(apart) {}

  __device__ Segment after(const Segment& s) const {
    if (s.sink) {
      const Segment rest = segment(s.block, s.start, false);
      if (rest.begin < rest.end && seen(rest)) {
        return rest;
      }
    }
    for (int n = s.block + 1;; ++n) {
      const int start = p_.start(b_, n);
      if (start < 0 || start > last_) {
        return {};
      }
      const Segment next = segment(n, start, apart_ && start < p_.sinks);
      if (seen(next)) {
        return next;
      }
    }
  }

 private:
  __device__ bool seen(const Segment& s) const {
    return p_.some_see(first_, last_, s.begin, s.end);
  }
  __device__ Segment segment(int block, int start, bool sink) const {
    Segment s{block, start, start, start + kTile, sink, false};
    if (s.end > last_ + 1) {
      s.end = last_ + 1;
    }
    if (sink && s.end > p_.sinks) {
      s.end = p_.sinks;
    }
    if (!sink && apart_ && s.begin < p_.sinks) {
      s.begin = p_.sinks;
    }
    s.masked =
        s.begin != start || s.end != start + kTile || !p_.all_see(first_, last_, start, s.end);
    return s;
  }

  const AttentionSizes& p_;
  int b_, first_, last_;
  bool apart_;
};

/// The softmax of a thread's rows over the keys seen so far, and what they add up to.
template <class Tile>
struct Running {
  using C = typename Tile::C;
  C max[Tile::kThreadRows];  // of the scores, as exponents of 2
  C sum[Tile::kThreadRows];  // this lane's part of it
  Accumulator<Tile, Tile::kDepth> out;

  /// Scores become weights, after sum and out have moved to the new maximum.
  template <class Hidden>
  __device__ void take(Accumulator<Tile, kTile>& scores, C unit, bool masked,
                       const Hidden& hidden) {
    HEADROOM_UNROLL
    for (int i = 0; i < Tile::kThreadRows; ++i) {
      C largest = static_cast<C>(kHidden);
      HEADROOM_UNROLL
      for (int j = 0; j < Accumulator<Tile, kTile>::kEach; ++j) {
        C& score = scores.values[i][j];
        score = masked && hidden(i, Tile::column(j)) ? static_cast<C>(kHidden) : score * unit;
        largest = score > largest ? score : largest;
      }
      largest = largest_of_row<Tile>(largest);
      const C new_max = largest > max[i] ? largest : max[i];
      const C shrink = power_of_2(max[i] - new_max);
      max[i] = new_max;
      sum[i] *= shrink;
      HEADROOM_UNROLL
      for (int j = 0; j < Accumulator<Tile, kTile>::kEach; ++j) {
        C& score = scores.values[i][j];
        score = score == static_cast<C>(kHidden) ? C(0) : power_of_2(score - new_max);
        sum[i] += score;
      }
      HEADROOM_UNROLL
      for (int j = 0; j < Accumulator<Tile, Tile::kDepth>::kEach; ++j) {
        out.values[i][j] *= shrink;
      }
    }
  }
};

/// One block: 64 rows of a sequence and KV head, and kDepth columns of their outputs.
template <class Tile, class S>
__global__ void __launch_bounds__(kTileThreads)
    attention_forward(ForwardArguments<S, typename Tile::C> a) {
  using C = typename Tile::C;
  const AttentionSizes& p = a.p;
  // The last rows see the most keys: they begin first.
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int stretches = pieces_of(p.value_size, Tile::kDepth);
  const int kv_head = static_cast<int>(blockIdx.y) / stretches;
  const int column = static_cast<int>(blockIdx.y) % stretches * Tile::kDepth;
  const int b = static_cast<int>(blockIdx.z);
  const int rows = p.rows(b) - first_row < kTile ? p.rows(b) - first_row : kTile;

  SharedPieces pieces;
  Staged<Tile> queries(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> keys(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  Staged<Tile> values(pieces.take<typename Tile::Operand>(Staged<Tile>::kElements));
  const Shared<C> exchange = pieces.take<C>(Tile::kExchange);

  const bool first_lane = static_cast<int>(threadIdx.x) % Tile::kLanesOfRow == 0;
  Running<Tile> running;
  int positions[Tile::kThreadRows];
  HEADROOM_UNROLL
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    const int row = first_row + Tile::row(i);
    positions[i] = p.position(b, row);
    // A learned sink logit is a key that adds nothing to the output.
    const bool sink = a.sink_logits != nullptr;
    running.max[i] = sink
                         ? a.sink_logits[kv_head * p.group + row % p.group] * static_cast<C>(kLog2E)
                         : static_cast<C>(kHidden);
    running.sum[i] = sink && first_lane ? C(1) : C(0);
  }

  if (rows > 0) {
    const bool apart = a.q_sink.values != nullptr;
    const Segments segments(p, b, p.position(b, first_row), p.position(b, first_row + rows - 1),
                            apart);
    const auto row = [&](int r) {
      return r < rows ? p.index(b, kv_head, first_row + r) : int64_t(-1);
    };
    const auto queries_of = [&](const Segment& s) {
      return Source{s.sink ? a.q_sink : a.q, s.sink ? 1 : 0, row};
    };
    const auto of_block = [&](const Segment& s, const StoredRows& from) {
      const int there = p.lengths[b] - s.start;
      const int slot = p.slot(b, s.block);
      return Source{from, s.block, [&p, there, slot, kv_head](int j) {
                      return j < there ? p.vector(slot + j, kv_head) : int64_t(-1);
                    }};
    };
    Segment s = segments.after({});
    queries.load(queries_of(s), 0);
    keys.load(of_block(s, a.k), 0);
    commit_copies();
    while (s.block >= 0) {
      // Values are on their way while scores are computed, and the next keys while these weigh
      // them.
      values.load(of_block(s, a.v), column);
      commit_copies();
      wait_for_copies<1>();
      Accumulator<Tile, kTile> scores;
      multiply_vectors(queries, queries_of(s), keys, of_block(s, a.k), scores);
      __syncthreads();
      const Segment next = segments.after(s);
      if (next.block >= 0) {
        queries.load(queries_of(next), 0);
        keys.load(of_block(next, a.k), 0);
      }
      commit_copies();
      running.take(scores, a.unit, s.masked, [&](int i, int j) {
        const int key = s.start + j;
        return key < s.begin || key >= s.end || !p.sees(positions[i], key);
      });
      wait_for_copies<1>();
      __syncthreads();
      Tile::multiply_add_to(scores, exchange, values.memory(), s.end - s.start,
                            p.value_size - column, running.out);
      __syncthreads();
      s = next;
    }
  }

  HEADROOM_UNROLL
  for (int i = 0; i < Tile::kThreadRows; ++i) {
    const C sum = sum_of_row<Tile>(running.sum[i]);
    const int row = first_row + Tile::row(i);
    if (row >= p.all_rows()) {
      continue;
    }
    const bool real = Tile::row(i) < rows;
    const int64_t at = p.index(b, kv_head, row);
    const C inverse = real ? 1 / sum : C(0);
    HEADROOM_UNROLL
    for (int j = 0; j < Accumulator<Tile, Tile::kDepth>::kEach; ++j) {
      const int c = column + Tile::column(j);
      if (c < p.value_size) {
        a.out[at * p.value_size + c] = narrow<S>(inverse * running.out.values[i][j]);
      }
    }
    if (column == 0 && first_lane) {
      a.lse[at] = real ? running.max[i] * static_cast<C>(kLn2) + logarithm(sum) : C(0);
    }
  }
}

template <class Tile, class S>
void launch_forward(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  using C = typename Tile::C;
  const AttentionSizes p(in);
  const ForwardArguments<S, C> arguments{
      p,
      stored_rows(in.q),
      in.q_sink.defined() ? stored_rows(in.q_sink) : StoredRows{},
      keys_of(in),
      values_of(in),
      in.sink_logits.defined() ? in.sink_logits.data<C>() : nullptr,
      static_cast<C>(in.scale * kLog2E),
      out.data<S>(),
      lse.data<C>()};
  const dim3 grid(static_cast<unsigned>(pieces_of(p.all_rows(), kTile)),
                  static_cast<unsigned>(p.kv_heads * pieces_of(p.value_size, Tile::kDepth)),
                  static_cast<unsigned>(p.batch));
  launch(attention_forward<Tile, S>, grid, dim3(kTileThreads), bytes_of_tiles<Tile>(3), arguments);
}

}  // namespace

void CudaBackend::attention(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  if (out.numel() == 0) {
    return;
  }
  if (decodes(in)) {
    return attention_decode(in, out, lse);
  }
  if (cudnn_takes(in) && cudnn_attention(in, out, lse)) {
    return;
  }
  const bool tensor_cores = in.q.dtype() == DType::bf16 && keys_of(in).storage == Storage::bf16 &&
                            values_of(in).storage == Storage::bf16;
  if (!tensor_cores) {
    return for_type(in.q.dtype(),
                    [&]<class S, class C>() { launch_forward<PlainTile<C>, S>(in, out, lse); });
  }
  if (in.q.dim(3) <= 64 && in.kv.width_of_values() <= 64) {
    launch_forward<TensorTile<64>, bf16>(in, out, lse);
  } else {
    launch_forward<TensorTile<128>, bf16>(in, out, lse);
  }
}

}  // namespace headroom::kernels::cuda
