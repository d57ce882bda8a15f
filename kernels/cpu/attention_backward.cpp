// The backward pass of attention: recomputes the weights of each tile from the saved log-sum-exp
// (FlashAttention, arXiv 2205.14135, algorithm 4). See attention-inl.h for how a tile is laid out.
#include <cmath>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/attention_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

template <class Tile, class S>
class BackwardPass {
 public:
  using C = typename Tile::C;
  using D = typename Tile::D;
  using Operand = typename Tile::Operand;

  BackwardPass(const AttentionInputs& in, const Tensor& out, const Tensor& lse, const Tensor& dout,
               const Into& dq, const Into& dk, const Into& dv, const Into& dsink)
      : p_(in),
        q_(in.q.data<S>()),
        k_(in.kv.k.data<S>()),
        v_(in.kv.v.data<S>()),
        out_(out.data<S>()),
        dout_(dout.data<S>()),
        lse_(lse.data<C>()),
        sink_logits_(dsink.wanted() ? in.sink_logits.data<C>() : nullptr),
        scale_(static_cast<C>(in.scale)),
        slots_(in.kv.k.dim(0)),
        dq_(dq),
        dk_(dk),
        dv_(dv),
        dsink_(dsink) {
    Pieces<C> item(nullptr);
    BackwardTile<Tile>(item, p_);
    item_scratch_ = item.used();
  }

  void run() {
    for (Into* d : {&dk_, &dv_}) {
      if (d->wanted() && !d->add && !every_slot_is_owned()) {
        d->tensor.zero();
      }
    }
    double* dsink =
        sink_logits_ == nullptr ? nullptr : scratch<double, ScratchUse::call>(p_.batch * p_.heads);
    const bool parallel =
        p_.batch * p_.heads * p_.queries * p_.blocks * KVView::kBlock > kSerialScores;
    each_item(p_.batch * p_.kv_heads, parallel, [this, dsink](int64_t item) HWY_ATTR {
      owner(item / p_.kv_heads, item % p_.kv_heads, dsink);
    });
    for (int64_t head = 0; head < p_.heads && dsink != nullptr; ++head) {
      double sum = dsink_.add ? static_cast<double>(dsink_.tensor.template data<C>()[head]) : 0.0;
      for (int64_t b = 0; b < p_.batch; ++b) {
        sum += dsink[b * p_.heads + head];
      }
      dsink_.tensor.template data<C>()[head] = static_cast<C>(sum);
    }
  }

 private:
  bool every_slot_is_owned() const {
    int64_t owned = 0;
    for (int64_t b = 0; b < p_.batch; ++b) {
      for (int64_t n = 0; n < p_.used_blocks(b); ++n) {
        owned += positions_in(b, n);
      }
    }
    return owned == slots_;
  }

  int64_t positions_in(int64_t b, int64_t n) const {
    return std::min<int64_t>(KVView::kBlock, p_.lengths[b] - p_.starts[b * p_.blocks + n]);
  }

  /// All gradients of one sequence and KV head.
  HWY_NOINLINE void owner(int64_t b, int64_t kv_head, double* dsink) {
    Pieces<C> pieces(scratch<C, ScratchUse::item>(item_scratch_));
    BackwardTile<Tile> t(pieces, p_);
    const int64_t blocks = p_.used_blocks(b), keys = blocks * KVView::kBlock + kStep;
    load_keys(b, kv_head, blocks, t);
    std::fill_n(t.dk, keys * t.key_columns, C(0));
    std::fill_n(t.dv, keys * t.value_columns, C(0));
    if (dsink != nullptr) {
      std::fill_n(dsink + b * p_.heads + kv_head * p_.group, p_.group, 0.0);
    }
    for (int64_t first = 0; first < p_.rows(b); first += Tile::kRows) {
      const int64_t rows = std::min(Tile::kRows, p_.rows(b) - first);
      load_rows_of(b, kv_head, first, rows, t);
      if (dsink != nullptr) {
        add_sinks(b, kv_head, first, rows, t, dsink);
      }
      std::fill_n(t.dq_t, Tile::kRows * t.key_columns, C(0));
      const int64_t last = p_.position(b, first + rows - 1);
      for (int64_t n = 0; n < blocks && p_.starts[b * p_.blocks + n] <= last; ++n) {
        const KeyRange range = visible_keys(p_, b, n, p_.position(b, first), last);
        if (range.size() > 0) {
          const int64_t at = n * KVView::kBlock + range.begin - p_.starts[b * p_.blocks + n];
          weigh(range, at, p_.position(b, first), t);
          accumulate(range.size(), at, t);
        }
      }
      write_dq(b, kv_head, first, rows, t);
    }
    clear_dq(b, kv_head);
    for (int64_t n = 0; n < blocks; ++n) {
      const int64_t at = p_.slots[b * p_.blocks + n] * p_.kv_heads + kv_head;
      write_rows(dk_, at, p_.kv_heads, positions_in(b, n), p_.key_size, scale_,
                 t.dk + n * KVView::kBlock * t.key_columns, t.key_columns);
      write_rows(dv_, at, p_.kv_heads, positions_in(b, n), p_.value_size, C(1),
                 t.dv + n * KVView::kBlock * t.value_columns, t.value_columns);
    }
  }

  void load_rows_of(int64_t b, int64_t kv_head, int64_t first, int64_t rows,
                    const BackwardTile<Tile>& t) const {
    load_rows<Tile>(p_, b, kv_head, first, rows, q_, p_.key_size, t.q, t.packed_key_columns);
    transpose(t.q, t.packed_key_columns, Tile::kRows, packs<Tile>(p_.key_size), t.q_t, Tile::kRows);
    load_rows<Tile>(p_, b, kv_head, first, rows, dout_, p_.value_size, t.dout,
                    t.packed_value_columns);
    transpose(t.dout, t.packed_value_columns, Tile::kRows, packs<Tile>(p_.value_size), t.dout_t,
              Tile::kRows);
    if constexpr (Tile::kPack == 2) {
      pair_rows(t.q, t.packed_key_columns, Tile::kRows, p_.key_size, t.q_pairs, t.key_columns);
      pair_rows(t.dout, t.packed_value_columns, Tile::kRows, p_.value_size, t.dout_pairs,
                t.value_columns);
    }
    row_positions<Tile>(p_, b, first, t.positions);
    const hn::ScalableTag<C> d;
    for (int64_t r = 0; r < Tile::kRows; ++r) {
      if (r >= rows) {  // weights of 1 that meet rows of 0
        t.lse[r] = t.delta[r] = C(0);
        continue;
      }
      const int64_t at = p_.index(b, kv_head, first + r);
      auto sum = hn::Zero(d);
      each_vector(d, 0, p_.value_size, [&](At column) HWY_ATTR {
        sum = hn::MulAdd(load(d, dout_ + at * p_.value_size, column),
                         load(d, out_ + at * p_.value_size, column), sum);
      });
      t.lse[r] = lse_[at] * kNat<C>;
      t.delta[r] = sum_lanes(d, sum);
    }
  }

  /// A sink logit has the weight exp(logit - lse) and no value.
  void add_sinks(int64_t b, int64_t kv_head, int64_t first, int64_t rows,
                 const BackwardTile<Tile>& t, double* dsink) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = kv_head * p_.group + (first + r) % p_.group;
      dsink[b * p_.heads + head] -= std::exp(static_cast<double>(sink_logits_[head]) -
                                             lse_[p_.index(b, kv_head, first + r)]) *
                                    t.delta[r];
    }
  }

  void load_keys(int64_t b, int64_t kv_head, int64_t blocks, const BackwardTile<Tile>& t) const {
    for (int64_t n = 0; n < blocks; ++n) {
      const int64_t at = p_.slots[b * p_.blocks + n] * p_.kv_heads + kv_head;
      const int64_t to = n * KVView::kBlock, count = positions_in(b, n);
      load_tile(k_ + at * p_.key_size, p_.kv_heads * p_.key_size, count, p_.key_size,
                t.keys + to * t.packed_key_columns, t.packed_key_columns);
      load_tile(v_ + at * p_.value_size, p_.kv_heads * p_.value_size, count, p_.value_size,
                t.values + to * t.packed_value_columns, t.packed_value_columns);
      if constexpr (Tile::kPack == 2) {
        pair_rows(t.keys + to * t.packed_key_columns, t.packed_key_columns, count, p_.key_size,
                  t.key_pairs + to / 2 * t.key_columns, t.key_columns);
      }
    }
  }

  /// The tile's weights of the keys from row `at` on, and the gradients of its scores; 0 for what
  /// is hidden, and for the keys that the products round up to.
  void weigh(const KeyRange& range, int64_t at, int64_t origin, const BackwardTile<Tile>& t) const {
    const D d;
    const int64_t keys = range.size();
    product<false, false, Tile::kVectors>(d, keys, packs<Tile>(p_.key_size),
                                          t.keys + at * t.packed_key_columns, t.packed_key_columns,
                                          t.q_t, Tile::kRows, t.scores, Tile::kRows);
    product<false, false, Tile::kVectors>(
        d, keys, packs<Tile>(p_.value_size), t.values + at * t.packed_value_columns,
        t.packed_value_columns, t.dout_t, Tile::kRows, t.dweights, Tile::kRows);
    share_out(p_.mask, scale_ * kNat<C>, range, origin, t);
    const int64_t past = (round_up(keys, kStep) - keys) * Tile::kRowOperands;
    std::fill_n(t.weights + keys * Tile::kRowOperands, past, Operand(0));
    std::fill_n(t.dscores + keys * Tile::kRowOperands, past, Operand(0));
  }

  /// Adds a tile's share, of the keys from row `at` on, to dq, dk and dv.
  void accumulate(int64_t keys, int64_t at, const BackwardTile<Tile>& t) const {
    product<true, true, Tile::kVectors>(
        D(), p_.key_size, packs<Tile>(keys), t.key_pairs + at / Tile::kPack * t.key_columns,
        t.key_columns, t.dscores_by_key, Tile::kRows, t.dq_t, Tile::kRows);
    add_product(keys, t.weights, t.dout_pairs, t.value_columns, t.dv + at * t.value_columns);
    add_product(keys, t.dscores, t.q_pairs, t.key_columns, t.dk + at * t.key_columns);
  }

  /// c (keys, columns) += a (keys, rows) b (rows, columns).
  static void add_product(int64_t keys, const Operand* a, const Operand* b, int64_t columns, C* c) {
    const hn::ScalableTag<C> d;
    constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<C>());
    int64_t i = 0;
    for (; i + 2 * kLanes <= columns; i += 2 * kLanes) {
      product<false, true, 2>(d, keys, Tile::kRowOperands, a, Tile::kRowOperands, b + i, columns,
                              c + i, columns);
    }
    if (i < columns) {
      product<false, true, 1>(d, keys, Tile::kRowOperands, a, Tile::kRowOperands, b + i, columns,
                              c + i, columns);
    }
  }

  void write_dq(int64_t b, int64_t kv_head, int64_t first, int64_t rows,
                const BackwardTile<Tile>& t) {
    transpose(t.dq_t, Tile::kRows, p_.key_size, Tile::kRows, t.dq, t.key_columns);
    for (int64_t r = 0; r < rows; ++r) {
      write_rows(dq_, p_.index(b, kv_head, first + r), 1, 1, p_.key_size, scale_,
                 t.dq + r * t.key_columns, t.key_columns);
    }
  }

  /// Rows beyond the sequence's have no gradient.
  void clear_dq(int64_t b, int64_t kv_head) {
    if (!dq_.wanted() || dq_.add) {
      return;
    }
    S* to = dq_.tensor.template data<S>();
    for (int64_t row = p_.rows(b); row < p_.queries * p_.group; ++row) {
      std::fill_n(to + p_.index(b, kv_head, row) * p_.key_size, p_.key_size, S(0));
    }
  }

  /// Writes or adds `rows` rows of the scratch times `factor` to the rows at, at + step, ... of a
  /// gradient.
  static void write_rows(Into& into, int64_t at, int64_t step, int64_t rows, int64_t width,
                         C factor, const C* from, int64_t ldf) {
    if (!into.wanted()) {
      return;
    }
    const hn::ScalableTag<C> d;
    const auto by = hn::Set(d, factor);
    S* to = into.tensor.template data<S>();
    for (int64_t r = 0; r < rows; ++r) {
      each_vector(d, 0, width, [&](At column) HWY_ATTR {
        store_into(hn::Mul(by, hn::Load(d, from + r * ldf + column.i)), d,
                   to + (at + r * step) * width, column, into.add);
      });
    }
  }

  AttentionSizes p_;
  const S *q_, *k_, *v_, *out_, *dout_;
  const C *lse_, *sink_logits_;
  C scale_;
  int64_t slots_;
  Into dq_, dk_, dv_, dsink_;
  int64_t item_scratch_ = 0;
};

void AttentionBackward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                       const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                       const Into& dsink) {
  for_type(in.q.dtype(), [&]<class S, class C>() {
    using Wide = hn::ScalableTag<C>;
#if HWY_TARGET == HWY_AVX3
    if constexpr (std::is_same_v<S, bf16>) {
      if (attends_in_pairs()) {
        using Tile = RowTile<Wide, 2, Pair>;
        return BackwardPass<Tile, S>(in, out, lse, dout, dq, dk, dv, dsink).run();
      }
    }
#endif
    using Tile = RowTile<Wide, 2>;
    BackwardPass<Tile, S>(in, out, lse, dout, dq, dk, dv, dsink).run();
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(AttentionBackward);

void attention_backward(const AttentionInputs& in, const Tensor& out, const Tensor& lse,
                        const Tensor& dout, const Into& dq, const Into& dk, const Into& dv,
                        const Into& dsink) {
  HWY_DYNAMIC_DISPATCH(AttentionBackward)(in, out, lse, dout, dq, dk, dv, dsink);
}

}  // namespace headroom::kernels::cpu
#endif
