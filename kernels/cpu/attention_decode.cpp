// Attention with one query per sequence, which waits for memory: positions are read in order, all
// heads of a position together, and the lanes of a vector are the numbers of a head. See
// Backend::attention in kernels/backend.h for semantics and shapes.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/attention_decode-inl.h"
#include "kernels/cpu/attention_softmax-inl.h"
#include "kernels/cpu/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// Takes kKeys keys at once, as elements of type R: where they lie if that is how the cache keeps
/// them, otherwise, R being the compute type, in a copy of the block.
template <class S, class R, int kKeys>
class DecodePass {
 public:
  using C = std::conditional_t<std::is_same_v<S, double>, double, float>;
  using D = hn::ScalableTag<C>;

  DecodePass(const AttentionInputs& in, Tensor& out, Tensor& lse)
      : p_(in),
        q_(in.q.data<S>()),
        q_sink_(in.q_sink.defined() ? in.q_sink.data<S>() : nullptr),
        k_(keys_of(in)),
        v_(values_of(in)),
        sink_logits_(in.sink_logits.defined() ? in.sink_logits.data<C>() : nullptr),
        unit_(static_cast<C>(in.scale) * kNat<C>),
        out_(out.data<S>()),
        lse_(lse.data<C>()),
        key_columns_(padded<C>(p_.key_size)),
        value_columns_(padded<C>(p_.value_size)),
        blocks_(p_.most_used_blocks()),
        parts_(cut(blocks_)) {
    Pieces<C> pieces(nullptr);
    Partial(pieces, *this);
    partial_size_ = pieces.used();
  }

  void run() {
    // A score takes 6 ns where the keys are in a cache, 20 where they are not.
    constexpr int64_t kFewScores = 1536;
    const bool parallel = p_.batch * p_.heads * blocks_ * KVView::kBlock > kFewScores;
    C* memory = scratch<C, ScratchUse::call>(p_.batch * parts_ * partial_size_);
    each_item(p_.batch * parts_, parallel, [this, memory](int64_t i) HWY_ATTR {
      part(i / parts_, i % parts_, partial_at(memory, i));
    });
    each_item(p_.batch, false, [this, memory](int64_t b) HWY_ATTR { merge(b, memory); });
  }

 private:
  /// A sequence is cut into parts, so that there is work for every thread. The cut follows from the
  /// batch and the length alone, and so does the result.
  static constexpr int64_t kWantedParts = 64;
  int64_t cut(int64_t blocks) const {
    return std::clamp<int64_t>(kWantedParts / std::max<int64_t>(1, p_.batch), 1,
                               std::max<int64_t>(1, blocks));
  }
  /// Of the weights: a block's keys, and those that rounding up may touch.
  static constexpr int64_t kColumns = KVView::kBlock + 16;

  /// What a part of the keys makes of every head.
  struct Partial {
    Partial(Pieces<C>& pieces, const DecodePass& pass)
        : out(pieces.take(pass.p_.heads * pass.value_columns_)),
          max(pieces.take(pass.p_.heads)),
          sum(pieces.take(pass.p_.heads)) {}
    C* out;  // (H, Dv): sum over keys of weight * value
    C* max;  // as power_of() takes it
    C* sum;  // of the weights
  };
  Partial partial_at(C* memory, int64_t i) const {
    Pieces<C> pieces(memory + i * partial_size_);
    return Partial(pieces, *this);
  }

  /// A thread's memory for a part.
  struct Work {
    Work(Pieces<C>& pieces, const DecodePass& pass)
        : q(pieces.take(pass.p_.heads * pass.key_columns_)),
          q_sink(pieces.take(pass.p_.heads * pass.key_columns_)),
          weights(pieces.take(pass.p_.heads * kColumns)),
          copy(pass.copies() ? pieces.take(KVView::kBlock * pass.p_.kv_heads *
                                           std::max(pass.key_columns_, pass.value_columns_))
                             : nullptr) {}
    C* q;        // (H, Dk), times the unit
    C* q_sink;   // the same, for the sink keys
    C* weights;  // (H, keys): scores, then the softmax
    C* copy;     // (keys, K, D) of a block, if what the cache holds is no R
  };
  bool copies() const { return !k_.template holds<R>() || !v_.template holds<R>(); }

  /// A range's keys, or values, of all heads as elements of type R.
  struct Rows {
    const R* first;  // of the first slot and head
    int64_t stride;  // from a head to the next; from a slot to the next it is that of all heads
  };
  Rows rows_of(const StoredRows& stored, const KeyRange& range, int64_t columns,
               const Work& work) const {
    if constexpr (std::is_same_v<R, C>) {
      if (!stored.template holds<R>()) {
        for (int64_t head = 0; head < p_.kv_heads; ++head) {
          stored.load(range.slot, head, range.size(), work.copy + head * columns,
                      p_.kv_heads * columns);
        }
        return {work.copy, columns};
      }
    }
    return {stored.template at<R>(range.slot, 0), stored.template stride<R>()};
  }

  HWY_NOINLINE void part(int64_t b, int64_t index, const Partial& partial) const {
    const int64_t blocks = p_.used_blocks(b), parts = cut(blocks);
    if (index >= parts) {
      return;
    }
    std::fill_n(partial.out, p_.heads * value_columns_, C(0));
    for (int64_t h = 0; h < p_.heads; ++h) {
      const bool sink = index == 0 && sink_logits_ != nullptr;
      partial.max[h] = sink ? sink_logits_[h] * kNat<C> : static_cast<C>(kHidden);
      partial.sum[h] = sink ? C(1) : C(0);
    }
    if (p_.rows(b) == 0) {
      return;
    }
    Pieces<C> count(nullptr);
    Work(count, *this);
    Pieces<C> pieces(scratch<C, ScratchUse::item>(count.used()));
    const Work work(pieces, *this);
    load_query(q_, b, work.q);
    if (q_sink_ != nullptr) {
      load_query(q_sink_, b, work.q_sink);
    }
    const int64_t position = p_.position(b, 0);
    for (int64_t n = blocks * index / parts; n < blocks * (index + 1) / parts; ++n) {
      const KeyRange range = visible_keys(p_, b, n, position, position);
      if (range.size() > 0) {
        score(range, work);
        hide(range, position, work);
        for (int64_t h = 0; h < p_.heads; ++h) {
          weigh(h, work, partial);
        }
        each_keys(0, range.size(), rows_of(v_, range, value_columns_, work),
                  [&]<int kHeads>(int64_t j, int64_t h, const R* const* rows) HWY_ATTR {
                    add_values<kHeads, kKeys>(work.weights + h * kColumns + j, kColumns, rows,
                                              p_.value_size, partial.out + h * value_columns_,
                                              value_columns_);
                  });
      }
    }
  }

  void load_query(const S* from, int64_t b, C* to) const {
    const D d;
    const auto unit = hn::Set(d, unit_);
    for (int64_t h = 0; h < p_.heads; ++h) {
      const S* row = from + (b * p_.heads + h) * p_.key_size;
      each_vector(d, 0, p_.key_size, [&](At at) HWY_ATTR {
        hn::Store(hn::Mul(unit, load(d, row, at)), d, to + h * key_columns_ + at.i);
      });
    }
  }

  /// Calls f.operator()<n>(j, h, rows) for kKeys keys from j on and all heads, n neighbours of a
  /// group at a time, with j in [from, to); beyond the last key the rows are those of the last.
  /// The next rows are asked for in the order in which they lie in memory, or the processor would
  /// not foresee them.
  template <class F>
  HWY_INLINE void each_keys(int64_t from, int64_t to, const Rows& all, const F& f) const {
    constexpr int64_t kLine = 64 / sizeof(R);
    const int64_t slot_stride = p_.kv_heads * all.stride, ahead = kKeys * all.stride;
    for (int64_t j = from; j < to; j += kKeys) {
      const R* next = all.first + (j + kKeys) * slot_stride;
      for (int64_t kv_head = 0; kv_head < p_.kv_heads; ++kv_head) {
        for (int64_t i = 0; i < ahead; i += kLine) {
          hwy::Prefetch(next + kv_head * ahead + i);
        }
        const R* rows[kKeys];
        for (int u = 0; u < kKeys; ++u) {
          rows[u] = all.first + std::min(j + u, to - 1) * slot_stride + kv_head * all.stride;
        }
        each_head(kv_head, [&]<int kHeads>(int64_t h)
                               HWY_ATTR { f.template operator()<kHeads>(j, h, rows); });
      }
    }
  }

  template <class F>
  HWY_INLINE void each_head(int64_t kv_head, const F& f) const {
    int64_t h = kv_head * p_.group;
    const int64_t end = h + p_.group;
    for (; h + 4 <= end; h += 4) {
      f.template operator()<4>(h);
    }
    switch (end - h) {
      case 3:
        return f.template operator()<3>(h);
      case 2:
        return f.template operator()<2>(h);
      case 1:
        return f.template operator()<1>(h);
      default:
        return;
    }
  }

  void score(const KeyRange& range, const Work& work) const {
    const Rows keys = rows_of(k_, range, key_columns_, work);
    const auto scores = [&](int64_t from, int64_t to, const C* q) HWY_ATTR {
      each_keys(
          from, to, keys, [&]<int kHeads>(int64_t j, int64_t h, const R* const* rows) HWY_ATTR {
            multiply_keys<kHeads, kKeys>(q + h * key_columns_, key_columns_, rows, p_.key_size,
                                         work.weights + h * kColumns + j, kColumns);
          });
    };
    const int64_t sinks = q_sink_ == nullptr ? 0 : p_.mask.sinks - range.begin;
    const int64_t seen_as_sinks = std::clamp<int64_t>(sinks, 0, range.size());
    scores(0, seen_as_sinks, work.q_sink);  // rounds up; the rest is written again
    scores(seen_as_sinks, range.size(), work.q);
  }

  /// Hides what the query must not see, and the rest of the block.
  void hide(const KeyRange& range, int64_t position, const Work& work) const {
    for (int64_t j = 0; j < KVView::kBlock; ++j) {
      const int64_t key = range.begin + j;
      const bool seen = j < range.size() && (p_.mask.window == 0 || key < p_.mask.sinks ||
                                             key > position - p_.mask.window);
      for (int64_t h = 0; h < p_.heads && !seen; ++h) {
        work.weights[h * kColumns + j] = static_cast<C>(kHidden);
      }
    }
  }

  /// A block's scores of one head become weights, after its sum and output have moved to the new
  /// maximum.
  void weigh(int64_t h, const Work& work, const Partial& partial) const {
    const D d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    C* scores = work.weights + h * kColumns;
    auto largest = hn::Set(d, partial.max[h]);
    for (int64_t j = 0; j < KVView::kBlock; j += lanes) {
      largest = hn::Max(largest, hn::Load(d, scores + j));
    }
    const auto max = hn::MaxOfLanes(d, largest);
    const C shrink = hn::GetLane(power_of(d, hn::Sub(hn::Set(d, partial.max[h]), max)));
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < KVView::kBlock; j += lanes) {
      const auto weight = power_of(d, hn::Sub(hn::Load(d, scores + j), max));
      sum = hn::Add(sum, weight);
      hn::Store(weight, d, scores + j);
    }
    partial.max[h] = hn::GetLane(max);
    partial.sum[h] = partial.sum[h] * shrink + sum_lanes(d, sum);
    scale(partial.out + h * value_columns_, shrink);
  }

  HWY_INLINE void scale(C* row, C factor) const {
    const D d;
    for (int64_t i = 0; i < p_.value_size; i += static_cast<int64_t>(hn::Lanes(d))) {
      hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, row + i)), d, row + i);
    }
  }

  /// Adds a sequence's parts in order and writes its row; 0 where it has no query.
  HWY_NOINLINE void merge(int64_t b, C* memory) const {
    const D d;
    const bool real = p_.rows(b) > 0;
    const int64_t parts = cut(p_.used_blocks(b));
    for (int64_t h = 0; h < p_.heads; ++h) {
      const Partial total = partial_at(memory, b * parts_);
      C max = total.max[h];
      for (int64_t part = 1; part < parts; ++part) {
        max = std::max(max, partial_at(memory, b * parts_ + part).max[h]);
      }
      C* row = total.out + h * value_columns_;
      C sum = 0;
      for (int64_t part = 0; part < parts; ++part) {
        const Partial other = partial_at(memory, b * parts_ + part);
        const C factor = hn::GetLane(power_of(d, hn::Set(d, other.max[h] - max)));
        sum += factor * other.sum[h];
        const C* from = other.out + h * value_columns_;
        for (int64_t i = 0; i < p_.value_size; i += static_cast<int64_t>(hn::Lanes(d))) {
          const auto x = hn::Mul(hn::Set(d, factor), hn::Load(d, from + i));
          hn::Store(part == 0 ? x : hn::Add(hn::Load(d, row + i), x), d, row + i);
        }
      }
      const int64_t to = b * p_.heads + h;
      lse_[to] = real ? max / kNat<C> + std::log(sum) : C(0);
      const auto inverse = hn::Set(d, real ? 1 / sum : C(0));
      each_vector(d, 0, p_.value_size, [&](At column) HWY_ATTR {
        store(hn::Mul(inverse, hn::Load(d, row + column.i)), d, out_ + to * p_.value_size, column);
      });
    }
  }

  AttentionSizes p_;
  const S *q_, *q_sink_;
  StoredRows k_, v_;
  const C* sink_logits_;
  C unit_;  // of the scores, as power_of() takes them
  S* out_;
  C* lse_;
  int64_t key_columns_, value_columns_;
  int64_t blocks_, parts_;  // of the longest sequence
  int64_t partial_size_ = 0;
};

template <class S, class R>
void decode_with(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  // Several keys at once save arithmetic, but what is read of them must fit L1 beside the next
  // ones.
  constexpr size_t kFewBytes = 2048;
  const int64_t widest = std::max(in.q.dim(3), in.kv.width_of_values());
  if (static_cast<size_t>(in.kv.k.dim(1) * widest) * sizeof(R) <= kFewBytes) {
    DecodePass<S, R, 4>(in, out, lse).run();
  } else {
    DecodePass<S, R, 1>(in, out, lse).run();
  }
}

void AttentionDecode(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  for_type(in.q.dtype(), [&]<class S, class C>() {
    if constexpr (!std::is_same_v<S, C>) {
      if (keys_of(in).holds<S>() && values_of(in).holds<S>()) {
        return decode_with<S, S>(in, out, lse);
      }
    }
    decode_with<S, C>(in, out, lse);
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(AttentionDecode);

void attention_decode(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  HWY_DYNAMIC_DISPATCH(AttentionDecode)(in, out, lse);
}

}  // namespace headroom::kernels::cpu
#endif
