// The forward pass of attention: see attention-inl.h for how a tile is laid out.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/targets.h"
#include "kernels/cpu/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// A score that no real one comes near: its exponential is 0 beside any other.
inline constexpr double kHidden = -1e30;

/// The running softmax of a tile's rows over the keys seen so far.
template <class Tile>
struct RunningSoftmax {
  using C = typename Tile::C;
  RunningSoftmax(Pieces<C>& pieces, int64_t value_size)
      : out(pieces.take(round_up(value_size, kStep) * Tile::kRows)),
        max(pieces.take(Tile::kRows)),
        sum(pieces.take(Tile::kRows)) {}
  C* out;  // (Dv, rows): sum over keys of exp(score - max) * value
  C* max;
  C* sum;
};

/// A thread's memory for one tile.
template <class Tile>
struct ForwardTile {
  using C = typename Tile::C;
  ForwardTile(Pieces<C>& pieces, const AttentionSizes& p)
      : key_columns(padded<C>(p.key_size)),
        value_columns(padded<C>(p.value_size)),
        rows(pieces.take(Tile::kRows * std::max(key_columns, value_columns))),
        q(pieces.take(key_columns * Tile::kRows)),
        q_sink(pieces.take(key_columns * Tile::kRows)),
        keys(pieces.take(kTileKeys * key_columns)),
        values(pieces.take(kTileKeys * value_columns)),
        scores(pieces.take((kTileKeys + kStep) * Tile::kRows)),
        positions(pieces.take(Tile::kRows)),
        softmax(pieces, p.value_size) {}
  int64_t key_columns, value_columns;
  C* rows;       // queries or outputs as they lie in memory
  C* q;          // (Dk, rows), scaled
  C* q_sink;     // (Dk, rows), scaled: what the sink keys see
  C* keys;       // (keys, Dk)
  C* values;     // (keys, Dv)
  C* scores;     // (keys, rows)
  C* positions;  // of the rows
  RunningSoftmax<Tile> softmax;
};

template <class Tile, class S>
class ForwardPass {
 public:
  using C = typename Tile::C;
  using D = typename Tile::D;

  ForwardPass(const AttentionInputs& in, Tensor& out, Tensor& lse)
      : p_(in),
        q_(in.q.data<S>()),
        q_sink_(in.q_sink.defined() ? in.q_sink.data<S>() : nullptr),
        k_(in.kv.k.data<S>()),
        v_(in.kv.v.data<S>()),
        sink_logits_(in.sink_logits.defined() ? in.sink_logits.data<C>() : nullptr),
        scale_(static_cast<C>(in.scale)),
        out_(out.data<S>()),
        lse_(lse.data<C>()),
        tiles_(round_up(p_.queries * p_.group, Tile::kRows) / Tile::kRows),
        items_(p_.batch * p_.kv_heads * tiles_),
        parts_(std::clamp<int64_t>(kWantedItems / std::max<int64_t>(1, items_), 1,
                                   std::max<int64_t>(1, p_.blocks / kBlocksPerPart))) {
    Pieces<C> item(nullptr), part(nullptr);
    ForwardTile<Tile>(item, p_);
    RunningSoftmax<Tile>(part, p_.value_size);
    item_scratch_ = item.used();
    part_scratch_ = part.used();
  }

  void run() {
    const bool parallel =
        p_.batch * p_.heads * p_.queries * p_.blocks * KVView::kBlock > kSerialScores;
    if (parts_ == 1) {
      each_item(items_, parallel, [this](int64_t item) HWY_ATTR { whole_item(item); });
      return;
    }
    C* partial = scratch<C, ScratchUse::call>(items_ * parts_ * part_scratch_);
    each_item(items_ * parts_, parallel,
              [this, partial](int64_t i) HWY_ATTR { part_of_item(i, partial); });
    each_item(items_, false, [this, partial](int64_t item) HWY_ATTR { merge(item, partial); });
  }

 private:
  // A long context with few rows is cut into parts, so that there is work for every thread. The cut
  // follows from shapes alone, and so does the result.
  static constexpr int64_t kWantedItems = 64;
  static constexpr int64_t kBlocksPerPart = 4;

  struct Item {
    int64_t b, kv_head, first, rows;  // rows [first, first + rows) are real, perhaps none
  };

  Item item_at(int64_t item) const {
    const int64_t tile = item % tiles_, owner = item / tiles_;
    const int64_t b = owner / p_.kv_heads, first = tile * Tile::kRows;
    return {b, owner % p_.kv_heads, first, std::clamp<int64_t>(p_.rows(b) - first, 0, Tile::kRows)};
  }

  HWY_NOINLINE void whole_item(int64_t index) {
    Pieces<C> pieces(scratch<C, ScratchUse::item>(item_scratch_));
    ForwardTile<Tile> t(pieces, p_);
    const Item item = item_at(index);
    if (item.rows > 0) {
      load_queries(item, t);
      start(item, t.softmax, true);
      attend(item, 0, p_.used_blocks(item.b), t, t.softmax);
    }
    finish(item, t, t.softmax);
  }

  HWY_NOINLINE void part_of_item(int64_t index, C* partial) {
    Pieces<C> pieces(scratch<C, ScratchUse::item>(item_scratch_));
    ForwardTile<Tile> t(pieces, p_);
    Pieces<C> mine(partial + index * part_scratch_);
    const RunningSoftmax<Tile> softmax(mine, p_.value_size);
    const Item item = item_at(index / parts_);
    const int64_t part = index % parts_, blocks = p_.used_blocks(item.b);
    if (item.rows > 0) {
      load_queries(item, t);
      start(item, softmax, part == 0);
      attend(item, blocks * part / parts_, blocks * (part + 1) / parts_, t, softmax);
    }
  }

  /// Adds an item's parts in order and writes its rows.
  HWY_NOINLINE void merge(int64_t index, C* partial) {
    Pieces<C> pieces(scratch<C, ScratchUse::item>(item_scratch_));
    ForwardTile<Tile> t(pieces, p_);
    const Item item = item_at(index);
    Pieces<C> first(partial + index * parts_ * part_scratch_);
    const RunningSoftmax<Tile> total(first, p_.value_size);
    for (int64_t part = 1; part < parts_ && item.rows > 0; ++part) {
      Pieces<C> other(partial + (index * parts_ + part) * part_scratch_);
      add(RunningSoftmax<Tile>(other, p_.value_size), total);
    }
    finish(item, t, total);
  }

  void add(const RunningSoftmax<Tile>& from, const RunningSoftmax<Tile>& to) const {
    const D d;
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const auto max_from = hn::Load(d, from.max + r), max_to = hn::Load(d, to.max + r);
      const auto max = hn::Max(max_from, max_to);
      const auto by_from = exp_weight(d, hn::Sub(max_from, max));
      const auto by_to = exp_weight(d, hn::Sub(max_to, max));
      const auto joined = [&](const C* x, C* y) HWY_ATTR {
        hn::Store(hn::MulAdd(by_from, hn::Load(d, x), hn::Mul(by_to, hn::Load(d, y))), d, y);
      };
      joined(from.sum + r, to.sum + r);
      for (int64_t i = 0; i < p_.value_size; ++i) {
        joined(from.out + i * Tile::kRows + r, to.out + i * Tile::kRows + r);
      }
      hn::Store(max, d, to.max + r);
    }
  }

  void load_queries(const Item& item, const ForwardTile<Tile>& t) const {
    const auto load = [&](const S* from, C* to) HWY_ATTR {
      load_rows<Tile>(p_, item.b, item.kv_head, item.first, item.rows, from, p_.key_size, scale_,
                      t.rows, t.key_columns);
      transpose(t.rows, t.key_columns, Tile::kRows, p_.key_size, to, Tile::kRows);
    };
    load(q_, t.q);
    if (q_sink_ != nullptr) {
      load(q_sink_, t.q_sink);
    }
    row_positions<Tile>(p_, item.b, item.first, t.positions);
  }

  /// No key seen yet. A learned sink logit is one that adds nothing to the output.
  void start(const Item& item, const RunningSoftmax<Tile>& softmax, bool with_sink) const {
    std::fill_n(softmax.out, round_up(p_.value_size, kStep) * Tile::kRows, C(0));
    for (int64_t r = 0; r < Tile::kRows; ++r) {
      const bool sink = with_sink && sink_logits_ != nullptr;
      const int64_t head = item.kv_head * p_.group + (item.first + r) % p_.group;
      softmax.max[r] = sink ? sink_logits_[head] : static_cast<C>(kHidden);
      softmax.sum[r] = sink ? C(1) : C(0);
    }
  }

  /// Takes the keys of blocks [begin, end) into the running softmax.
  void attend(const Item& item, int64_t begin, int64_t end, const ForwardTile<Tile>& t,
              const RunningSoftmax<Tile>& softmax) const {
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
      load_tile(key(item, range), p_.kv_heads * p_.key_size, range.size(), p_.key_size, C(1),
                t.keys, t.key_columns);
      load_tile(value(item, range), p_.kv_heads * p_.value_size, range.size(), p_.value_size, C(1),
                t.values, t.value_columns);
      score(item, range, next, t);
      if (range.masked) {
        hide(range, first, t);
      }
      exponentiate(range.size(), t, softmax);
      product<true, true, Tile::kVectors>(D(), p_.value_size, range.size(), t.values,
                                          t.value_columns, t.scores, Tile::kRows, softmax.out,
                                          Tile::kRows);
    }
  }

  /// Where the first key of a range is, and its value.
  const S* key(const Item& item, const KeyRange& range) const {
    return k_ + (range.slot * p_.kv_heads + item.kv_head) * p_.key_size;
  }
  const S* value(const Item& item, const KeyRange& range) const {
    return v_ + (range.slot * p_.kv_heads + item.kv_head) * p_.value_size;
  }

  /// The scores of a tile; meanwhile memory is asked for the next one.
  void score(const Item& item, const KeyRange& range, const KeyRange& next,
             const ForwardTile<Tile>& t) const {
    const int64_t key_stride = p_.kv_heads * p_.key_size;
    const int64_t value_stride = p_.kv_heads * p_.value_size;
    const auto scores = [&](int64_t from, int64_t to, const C* q) HWY_ATTR {
      for (int64_t j = from; j < to; j += kStep) {
        const int64_t ahead = std::clamp<int64_t>(next.size() - j, 0, kStep);
        prefetch_tile(key(item, next) + j * key_stride, key_stride, ahead, p_.key_size);
        prefetch_tile(value(item, next) + j * value_stride, value_stride, ahead, p_.value_size);
        product<false, false, Tile::kVectors>(D(), kStep, p_.key_size, t.keys + j * t.key_columns,
                                              t.key_columns, q, Tile::kRows,
                                              t.scores + j * Tile::kRows, Tile::kRows);
      }
    };
    const int64_t sinks = q_sink_ == nullptr ? 0 : p_.mask.sinks - range.begin;
    const int64_t seen_as_sinks = std::clamp<int64_t>(sinks, 0, range.size());
    scores(0, seen_as_sinks, t.q_sink);  // the rows it rounds up to are written again below
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

  /// scores = exp(scores - max), after the running softmax has moved to the new maximum. A row
  /// whose keys are all hidden so far counts them as 1 each, until its first real key scales that
  /// by 0.
  void exponentiate(int64_t keys, const ForwardTile<Tile>& t,
                    const RunningSoftmax<Tile>& softmax) const {
    const D d;
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const auto old_max = hn::Load(d, softmax.max + r);
      auto max = old_max;
      for (int64_t j = 0; j < keys; ++j) {
        max = hn::Max(max, hn::Load(d, t.scores + j * Tile::kRows + r));
      }
      const auto shrink = exp_weight(d, hn::Sub(old_max, max));
      auto sum = hn::Mul(shrink, hn::Load(d, softmax.sum + r));
      for (int64_t j = 0; j < keys; ++j) {
        C* s = t.scores + j * Tile::kRows + r;
        const auto weight = exp_weight(d, hn::Sub(hn::Load(d, s), max));
        sum = hn::Add(sum, weight);
        hn::Store(weight, d, s);
      }
      hn::Store(max, d, softmax.max + r);
      hn::Store(sum, d, softmax.sum + r);
      for (int64_t i = 0; i < p_.value_size; ++i) {
        C* out = softmax.out + i * Tile::kRows + r;
        hn::Store(hn::Mul(shrink, hn::Load(d, out)), d, out);
      }
    }
  }

  /// Divides by the sums and writes the tile's rows; those beyond the sequence's become 0.
  void finish(const Item& item, const ForwardTile<Tile>& t,
              const RunningSoftmax<Tile>& softmax) const {
    const D d;
    if (item.rows > 0) {
      for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
        const auto sum = hn::Load(d, softmax.sum + r);
        const auto by = hn::Div(hn::Set(d, C(1)), sum);
        for (int64_t i = 0; i < p_.value_size; ++i) {
          C* out = softmax.out + i * Tile::kRows + r;
          hn::Store(hn::Mul(by, hn::Load(d, out)), d, out);
        }
        hn::Store(hn::Add(hn::Load(d, softmax.max + r), hn::Log(d, sum)), d, softmax.max + r);
      }
      transpose(softmax.out, Tile::kRows, p_.value_size, Tile::kRows, t.rows, t.value_columns);
    }
    const hn::ScalableTag<C> wide;
    const int64_t all = p_.queries * p_.group - item.first;
    for (int64_t r = 0; r < std::min(Tile::kRows, all); ++r) {
      const int64_t at = p_.index(item.b, item.kv_head, item.first + r);
      const bool real = r < item.rows;
      lse_[at] = real ? softmax.max[r] : C(0);
      each_vector(wide, 0, p_.value_size, [&](At column) HWY_ATTR {
        const C* row = t.rows + r * t.value_columns + column.i;
        store(real ? hn::Load(wide, row) : hn::Zero(wide), wide, out_ + at * p_.value_size, column);
      });
    }
  }

  AttentionSizes p_;
  const S *q_, *q_sink_, *k_, *v_;
  const C* sink_logits_;
  C scale_;
  S* out_;
  C* lse_;
  int64_t tiles_, items_, parts_;
  int64_t item_scratch_ = 0, part_scratch_ = 0;
};

/// Few rows (decoding) get narrow vectors, of which a core can start more.
void AttentionForward(const AttentionInputs& in, Tensor& out, Tensor& lse) {
  for_type(in.q.dtype(), [&]<class S, class C>() {
    using Wide = hn::ScalableTag<C>;
    using Narrow = hn::CappedTag<C, 4>;
    const int64_t rows = in.q.dim(1) * in.q.dim(2) / in.kv.k.dim(1);
    if (rows <= RowTile<Narrow, 1>::kRows) {
      ForwardPass<RowTile<Narrow, 1>, S>(in, out, lse).run();
    } else if (rows <= RowTile<Wide, 1>::kRows) {
      ForwardPass<RowTile<Wide, 1>, S>(in, out, lse).run();
    } else {
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
  HWY_DYNAMIC_DISPATCH(AttentionForward)(in, out, lse);
}

}  // namespace headroom::kernels::cpu
#endif
