// The forward pass of attention: see attention-inl.h for how a tile is laid out.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/targets.h"
#include "kernels/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/attention_softmax-inl.h"
#include "kernels/cpu/stored_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

template <class Tile, class S>
class ForwardPass {
 public:
  using C = typename Tile::C;
  using D = typename Tile::D;

  ForwardPass(const AttentionInputs& in, Tensor& out, Tensor& lse)
      : p_(in),
        q_(in.q.data<S>()),
        q_sink_(in.q_sink.defined() ? in.q_sink.data<S>() : nullptr),
        k_(keys_of(in)),
        v_(values_of(in)),
        sink_logits_(in.sink_logits.defined() ? in.sink_logits.data<C>() : nullptr),
        scale_(static_cast<C>(in.scale)),
        out_(out.data<S>()),
        lse_(lse.data<C>()),
        tiles_(round_up(p_.queries * p_.group, Tile::kRows) / Tile::kRows),
        items_(p_.batch * p_.kv_heads * tiles_),
        blocks_(p_.most_used_blocks()),
        parts_(std::clamp<int64_t>(kWantedItems / std::max<int64_t>(1, items_), 1,
                                   std::max<int64_t>(1, blocks_ / kBlocksPerPart))) {
    Pieces<C> tile(nullptr), softmax(nullptr);
    ForwardTile<Tile>(tile, p_);
    RunningSoftmax<Tile>(softmax, p_.value_size, scale_);
    tile_scratch_ = tile.used();
    softmax_scratch_ = softmax.used();
  }

  void run() {
    const bool parallel =
        p_.batch * p_.heads * p_.queries * blocks_ * KVView::kBlock > kSerialScores;
    if (parts_ == 1) {
      each_item(items_, parallel, [this](int64_t item) HWY_ATTR { whole_item(item); });
      return;
    }
    C* partial = scratch<C, ScratchUse::call>(items_ * parts_ * softmax_scratch_);
    each_item(items_ * parts_, parallel,
              [this, partial](int64_t i) HWY_ATTR { part_of_item(i, partial); });
    each_item(items_, false, [this, partial](int64_t item) HWY_ATTR { merge(item, partial); });
  }

 private:
  // A long context with few rows is cut into parts, so that there is work for every thread. The cut
  // follows from shapes and lengths alone, and so does the result.
  static constexpr int64_t kWantedItems = 64, kBlocksPerPart = 4;

  struct Item {
    int64_t b, kv_head;
    int64_t first, rows;  // rows [first, first + rows) are real, perhaps none
  };

  Item item_at(int64_t item) const {
    const int64_t tile = item % tiles_, owner = item / tiles_;
    const int64_t b = owner / p_.kv_heads, first = tile * Tile::kRows;
    return {b, owner % p_.kv_heads, first, std::clamp<int64_t>(p_.rows(b) - first, 0, Tile::kRows)};
  }

  ForwardTile<Tile> tile_at(C* memory) const {
    Pieces<C> pieces(memory);
    return ForwardTile<Tile>(pieces, p_);
  }
  RunningSoftmax<Tile> softmax_at(C* memory) const {
    Pieces<C> pieces(memory);
    return RunningSoftmax<Tile>(pieces, p_.value_size, scale_);
  }

  HWY_NOINLINE void whole_item(int64_t index) {
    C* memory = scratch<C, ScratchUse::item>(tile_scratch_ + softmax_scratch_);
    const ForwardTile<Tile> t = tile_at(memory);
    const RunningSoftmax<Tile> running = softmax_at(memory + tile_scratch_);
    const Item item = item_at(index);
    if (item.rows > 0) {
      start(item, running, true, t);
      attend(item, 0, p_.used_blocks(item.b), t, running);
    }
    finish(item, t, running);
  }

  HWY_NOINLINE void part_of_item(int64_t index, C* partial) {
    const ForwardTile<Tile> t = tile_at(scratch<C, ScratchUse::item>(tile_scratch_));
    const RunningSoftmax<Tile> running = softmax_at(partial + index * softmax_scratch_);
    const Item item = item_at(index / parts_);
    const int64_t part = index % parts_, blocks = p_.used_blocks(item.b);
    if (item.rows > 0) {
      start(item, running, part == 0, t);
      attend(item, blocks * part / parts_, blocks * (part + 1) / parts_, t, running);
    }
  }

  /// Adds an item's parts in order and writes its rows.
  HWY_NOINLINE void merge(int64_t index, C* partial) {
    const ForwardTile<Tile> t = tile_at(scratch<C, ScratchUse::item>(tile_scratch_));
    const Item item = item_at(index);
    C* first = partial + index * parts_ * softmax_scratch_;
    const RunningSoftmax<Tile> total = softmax_at(first);
    for (int64_t part = 1; part < parts_ && item.rows > 0; ++part) {
      total.add(softmax_at(first + part * softmax_scratch_));
    }
    finish(item, t, total);
  }

  /// Loads the queries. No key seen yet; a learned sink logit is one that adds nothing to the
  /// output.
  void start(const Item& item, const RunningSoftmax<Tile>& running, bool with_sink,
             const ForwardTile<Tile>& t) const {
    row_positions<Tile>(p_, item.b, item.first, t.positions);
    const auto load = [&](const S* from, typename Tile::Operand* to) HWY_ATTR {
      load_rows<Tile>(p_, item.b, item.kv_head, item.first, item.rows, from, p_.key_size, t.q_rows,
                      t.key_columns);
      transpose(t.q_rows, t.key_columns, Tile::kRows, packs<Tile>(p_.key_size), to, Tile::kRows);
    };
    load(q_, t.q);
    if (q_sink_ != nullptr) {
      load(q_sink_, t.q_sink);
    }
    const bool sink = with_sink && sink_logits_ != nullptr;
    std::fill_n(running.out, round_up(p_.value_size, kStep) * Tile::kRows, C(0));
    for (int64_t r = 0; r < Tile::kRows; ++r) {
      const int64_t head = item.kv_head * p_.group + (item.first + r) % p_.group;
      running.max[r] = sink ? sink_logits_[head] * kNat<C> : static_cast<C>(kHidden);
      running.sum[r] = sink ? C(1) : C(0);
    }
  }

  /// Takes the keys of blocks [begin, end) into the running softmax.
  void attend(const Item& item, int64_t begin, int64_t end, const ForwardTile<Tile>& t,
              const RunningSoftmax<Tile>& running) const {
    const int64_t first = p_.position(item.b, item.first);
    const int64_t last = p_.position(item.b, item.first + item.rows - 1);
    const auto range_at = [&](int64_t n) {
      return n < end ? visible_keys(p_, item.b, n, first, last) : KeyRange{};
    };
    KeyRange range = range_at(begin), next;
    for (int64_t n = begin; n < end; ++n, range = next) {
      next = range_at(n + 1);
      if (range.size() == 0) {
        continue;
      }
      k_.load(range.slot, item.kv_head, range.size(), t.keys, t.key_columns);
      v_.load(range.slot, item.kv_head, range.size(), t.value_rows, t.packed_value_columns);
      if constexpr (Tile::kPack == 2) {
        pair_rows(t.value_rows, t.packed_value_columns, range.size(), p_.value_size, t.values,
                  t.value_columns);
      }
      score(range, next, item.kv_head, t);
      if (range.masked) {
        hide(range, first, t);
      }
      running.take(t.scores, range.size(), t.weights);
      product<true, true, Tile::kVectors>(D(), p_.value_size, packs<Tile>(range.size()), t.values,
                                          t.value_columns, t.weights, Tile::kRows, running.out,
                                          Tile::kRows);
    }
  }

  /// The scores of a tile; meanwhile memory is asked for the next one.
  void score(const KeyRange& range, const KeyRange& next, int64_t kv_head,
             const ForwardTile<Tile>& t) const {
    const auto scores = [&](int64_t from, int64_t to, const typename Tile::Operand* q) HWY_ATTR {
      for (int64_t j = from; j < to; j += kStep) {
        const int64_t ahead = std::clamp<int64_t>(next.size() - j, 0, kStep);
        k_.prefetch(next.slot + j, kv_head, ahead);
        v_.prefetch(next.slot + j, kv_head, ahead);
        product<false, false, Tile::kVectors>(D(), kStep, packs<Tile>(p_.key_size),
                                              t.keys + j * t.key_columns, t.key_columns, q,
                                              Tile::kRows, t.scores + j * Tile::kRows, Tile::kRows);
      }
    };
    const int64_t sinks = q_sink_ == nullptr ? 0 : p_.mask.sinks - range.begin;
    const int64_t seen_as_sinks = std::clamp<int64_t>(sinks, 0, range.size());
    scores(0, seen_as_sinks, t.q_sink);  // rounds up; the rest is written again
    scores(seen_as_sinks, range.size(), t.q);
  }

  void hide(const KeyRange& range, int64_t origin, const ForwardTile<Tile>& t) const {
    const D d;
    const auto hidden = hn::Set(d, static_cast<C>(kHidden));
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const auto positions = hn::Load(d, t.positions + r);
      for (int64_t j = 0; j < range.size(); ++j) {
        C* s = t.scores + j * Tile::kRows + r;
        const auto seen = sees(d, p_.mask, positions, range.begin + j, origin);
        hn::Store(hn::IfThenElse(seen, hn::Load(d, s), hidden), d, s);
      }
    }
  }

  /// Divides by the sums and writes the item's rows; those beyond the sequence's become 0.
  void finish(const Item& item, const ForwardTile<Tile>& t,
              const RunningSoftmax<Tile>& running) const {
    if (item.rows > 0) {
      running.divide();
      transpose(running.out, Tile::kRows, p_.value_size, Tile::kRows, t.out_rows, t.value_columns);
    }
    const hn::ScalableTag<C> d;
    const int64_t all = std::min(Tile::kRows, p_.queries * p_.group - item.first);
    for (int64_t r = 0; r < all; ++r) {
      const int64_t at = p_.index(item.b, item.kv_head, item.first + r);
      const bool real = r < item.rows;
      lse_[at] = real ? running.max[r] : C(0);
      each_vector(d, 0, p_.value_size, [&](At column) HWY_ATTR {
        const C* row = t.out_rows + r * t.value_columns + column.i;
        store(real ? hn::Load(d, row) : hn::Zero(d), d, out_ + at * p_.value_size, column);
      });
    }
  }

  AttentionSizes p_;
  const S *q_, *q_sink_;
  StoredRows k_, v_;
  const C* sink_logits_;
  C scale_;
  S* out_;
  C* lse_;
  int64_t tiles_;  // of rows, for each sequence and KV head
  int64_t items_, blocks_, parts_;
  int64_t tile_scratch_ = 0, softmax_scratch_ = 0;
};

/// Few rows get vectors of 8, of which a core may start twice as many as of 16.
void AttentionForward(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  for_type(in.q.dtype(), [&]<class S, class C>() {
    using Wide = hn::ScalableTag<C>;
    using Narrow = hn::CappedTag<C, 8>;
    const int64_t rows = in.q.dim(1) * in.q.dim(2) / in.kv.k.dim(1);
    // Where vectors have 8 lanes at most the first two are the same.
    // NOLINTNEXTLINE(bugprone-branch-clone)
    if (rows <= RowTile<Narrow, 1>::kRows) {
      ForwardPass<RowTile<Narrow, 1>, S>(in, out, lse).run();
    } else if (rows <= RowTile<Wide, 1>::kRows) {
      ForwardPass<RowTile<Wide, 1>, S>(in, out, lse).run();
    } else {
#if HWY_TARGET == HWY_AVX3
      if constexpr (std::is_same_v<S, bf16>) {
        if (attends_in_pairs() && keys_of(in).holds<bf16>() && values_of(in).holds<bf16>()) {
          return ForwardPass<RowTile<Wide, 2, Pair>, S>(in, out, lse).run();
        }
      }
#endif
      ForwardPass<RowTile<Wide, 2>, S>(in, out, lse).run();
    }
  });
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels::cpu {

HWY_EXPORT(AttentionForward);

void attention(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  if (in.q.dim(1) == 1) {
    attention_decode(in, out, lse);
  } else {
    HWY_DYNAMIC_DISPATCH(AttentionForward)(in, out, lse);
  }
}

}  // namespace headroom::kernels::cpu
#endif
