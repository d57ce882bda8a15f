// The forward pass of attention: see attention-inl.h for how a tile is laid out.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/targets.h"
#include "kernels/cpu/types.h"
#include "kernels/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "kernels/cpu/attention_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// A thread's memory for an item: one tile, or one for each of several KV heads.
template <class Tile>
struct ForwardTile {
  using C = typename Tile::C;
  using Operand = typename Tile::Operand;
  ForwardTile(Pieces<C>& pieces, const AttentionSizes& p, int64_t heads)
      : key_columns(packed_columns<Tile>(p.key_size)),
        value_columns(padded<C>(p.value_size)),
        packed_value_columns(packed_columns<Tile>(p.value_size)),
        q_rows(pieces.template take_as<Operand>(Tile::kRows * key_columns)),
        out_rows(pieces.take(Tile::kRows * value_columns)),
        q(pieces.template take_as<Operand>(heads * key_columns * Tile::kRows)),
        q_sink(pieces.template take_as<Operand>(heads * key_columns * Tile::kRows)),
        keys(pieces.template take_as<Operand>(kTileKeys * key_columns)),
        value_rows(pieces.template take_as<Operand>(kTileKeys * packed_value_columns)),
        values(value_rows),
        scores(pieces.take((kTileKeys + kStep) * Tile::kRows)),
        positions(pieces.take(Tile::kRows)) {
    if constexpr (Tile::kPack == 1) {
      weights = scores;
    } else {
      values = pieces.template take_as<Operand>(kTileKeys / 2 * value_columns);
      weights = pieces.template take_as<Operand>(kTileKeys / 2 * Tile::kRows);
    }
  }
  int64_t key_columns, value_columns, packed_value_columns;
  Operand* q_rows;      // queries as they lie in memory
  C* out_rows;          // outputs, likewise
  Operand* q;           // (heads, Dk, rows)
  Operand* q_sink;      // (heads, Dk, rows): what the sink keys see
  Operand* keys;        // (keys, Dk)
  Operand* value_rows;  // (keys, Dv), packed along Dv
  Operand* values;      // the same, packed along the keys
  C* scores;            // (keys, rows)
  Operand* weights;     // (keys, rows)
  C* positions;         // of the rows
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
        together_(p_.queries == 1 ? p_.kv_heads : 1),
        items_(p_.batch * p_.kv_heads / together_ * tiles_),
        parts_(std::clamp<int64_t>(kWantedItems / std::max<int64_t>(1, items_), 1,
                                   std::max<int64_t>(1, p_.blocks / blocks_per_part()))) {
    Pieces<C> tile(nullptr), softmax(nullptr);
    ForwardTile<Tile>(tile, p_, together_);
    RunningSoftmax<Tile>(softmax, p_.value_size, scale_);
    tile_scratch_ = tile.used();
    softmax_scratch_ = softmax.used();
  }

  void run() {
    const bool parallel =
        p_.batch * p_.heads * p_.queries * p_.blocks * KVView::kBlock > kSerialScores;
    if (parts_ == 1) {
      each_item(items_, parallel, [this](int64_t item) HWY_ATTR { whole_item(item); });
      return;
    }
    C* partial = scratch<C, ScratchUse::call>(items_ * parts_ * together_ * softmax_scratch_);
    each_item(items_ * parts_, parallel,
              [this, partial](int64_t i) HWY_ATTR { part_of_item(i, partial); });
    each_item(items_, false, [this, partial](int64_t item) HWY_ATTR { merge(item, partial); });
  }

 private:
  // A long context with few rows is cut into parts, so that there is work for every thread. The cut
  // follows from shapes alone, and so does the result. A single query takes all KV heads together,
  // block by block: their keys are neighbours in memory, and memory is what it waits for.
  static constexpr int64_t kWantedItems = 64;
  int64_t blocks_per_part() const { return together_ > 1 ? 1 : 4; }

  struct Item {
    int64_t b, kv_head;   // the first of `together_` heads
    int64_t first, rows;  // rows [first, first + rows) are real, perhaps none
  };

  Item item_at(int64_t item) const {
    const int64_t tile = item % tiles_, owner = item / tiles_;
    const int64_t groups = p_.kv_heads / together_;
    const int64_t b = owner / groups, first = tile * Tile::kRows;
    return {b, owner % groups * together_, first,
            std::clamp<int64_t>(p_.rows(b) - first, 0, Tile::kRows)};
  }

  ForwardTile<Tile> tile_at(C* memory) const {
    Pieces<C> pieces(memory);
    return ForwardTile<Tile>(pieces, p_, together_);
  }
  RunningSoftmax<Tile> softmax_at(C* memory, int64_t head) const {
    Pieces<C> pieces(memory + head * softmax_scratch_);
    return RunningSoftmax<Tile>(pieces, p_.value_size, scale_);
  }

  HWY_NOINLINE void whole_item(int64_t index) {
    C* memory = scratch<C, ScratchUse::item>(tile_scratch_ + together_ * softmax_scratch_);
    const ForwardTile<Tile> t = tile_at(memory);
    C* softmax = memory + tile_scratch_;
    const Item item = item_at(index);
    if (item.rows > 0) {
      start(item, softmax, true, t);
      attend(item, 0, p_.used_blocks(item.b), t, softmax);
    }
    finish(item, t, softmax);
  }

  HWY_NOINLINE void part_of_item(int64_t index, C* partial) {
    const ForwardTile<Tile> t = tile_at(scratch<C, ScratchUse::item>(tile_scratch_));
    C* softmax = partial + index * together_ * softmax_scratch_;
    const Item item = item_at(index / parts_);
    const int64_t part = index % parts_, blocks = p_.used_blocks(item.b);
    if (item.rows > 0) {
      start(item, softmax, part == 0, t);
      attend(item, blocks * part / parts_, blocks * (part + 1) / parts_, t, softmax);
    }
  }

  /// Adds an item's parts in order and writes its rows.
  HWY_NOINLINE void merge(int64_t index, C* partial) {
    const ForwardTile<Tile> t = tile_at(scratch<C, ScratchUse::item>(tile_scratch_));
    const Item item = item_at(index);
    const int64_t size = together_ * softmax_scratch_;
    C* total = partial + index * parts_ * size;
    for (int64_t part = 1; part < parts_ && item.rows > 0; ++part) {
      for (int64_t h = 0; h < together_; ++h) {
        softmax_at(total, h).add(softmax_at(total + part * size, h));
      }
    }
    finish(item, t, total);
  }

  /// Loads the queries. No key seen yet; a learned sink logit is one that adds nothing to the
  /// output.
  void start(const Item& item, C* softmax, bool with_sink, const ForwardTile<Tile>& t) const {
    row_positions<Tile>(p_, item.b, item.first, t.positions);
    for (int64_t h = 0; h < together_; ++h) {
      const int64_t kv_head = item.kv_head + h;
      const auto load = [&](const S* from, typename Tile::Operand* to) HWY_ATTR {
        load_rows<Tile>(p_, item.b, kv_head, item.first, item.rows, from, p_.key_size, t.q_rows,
                        t.key_columns);
        transpose(t.q_rows, t.key_columns, Tile::kRows, packs<Tile>(p_.key_size), to, Tile::kRows);
      };
      load(q_, t.q + h * t.key_columns * Tile::kRows);
      if (q_sink_ != nullptr) {
        load(q_sink_, t.q_sink + h * t.key_columns * Tile::kRows);
      }
      const RunningSoftmax<Tile> running = softmax_at(softmax, h);
      const bool sink = with_sink && sink_logits_ != nullptr;
      std::fill_n(running.out, round_up(p_.value_size, kStep) * Tile::kRows, C(0));
      for (int64_t r = 0; r < Tile::kRows; ++r) {
        const int64_t head = kv_head * p_.group + (item.first + r) % p_.group;
        running.max[r] = sink ? sink_logits_[head] * kNat<C> : static_cast<C>(kHidden);
        running.sum[r] = sink ? C(1) : C(0);
      }
    }
  }

  /// Takes the keys of blocks [begin, end) into the running softmaxes.
  void attend(const Item& item, int64_t begin, int64_t end, const ForwardTile<Tile>& t,
              C* softmax) const {
    const int64_t first = p_.position(item.b, item.first);
    const int64_t last = p_.position(item.b, item.first + item.rows - 1);
    const auto range_at = [&](int64_t n) {
      return n < end ? visible_keys(p_, item.b, n, first, last) : KeyRange{};
    };
    KeyRange range = range_at(begin), next;
    for (int64_t n = begin; n < end; ++n, range = next) {
      next = range_at(n + 1);
      for (int64_t h = 0; h < together_ && range.size() > 0; ++h) {
        const int64_t kv_head = item.kv_head + h;
        load_tile(key(range, kv_head), p_.kv_heads * p_.key_size, range.size(), p_.key_size, t.keys,
                  t.key_columns);
        load_tile(value(range, kv_head), p_.kv_heads * p_.value_size, range.size(), p_.value_size,
                  t.value_rows, t.packed_value_columns);
        if constexpr (Tile::kPack == 2) {
          pair_rows(t.value_rows, t.packed_value_columns, range.size(), p_.value_size, t.values,
                    t.value_columns);
        }
        score(range, next, h, kv_head, t);
        if (range.masked) {
          hide(range, first, t);
        }
        const RunningSoftmax<Tile> running = softmax_at(softmax, h);
        running.take(t.scores, range.size(), t.weights);
        product<true, true, Tile::kVectors>(D(), p_.value_size, packs<Tile>(range.size()), t.values,
                                            t.value_columns, t.weights, Tile::kRows, running.out,
                                            Tile::kRows);
      }
    }
  }

  /// Where the first key of a range is, and its value.
  const S* key(const KeyRange& range, int64_t kv_head) const {
    return k_ + (range.slot * p_.kv_heads + kv_head) * p_.key_size;
  }
  const S* value(const KeyRange& range, int64_t kv_head) const {
    return v_ + (range.slot * p_.kv_heads + kv_head) * p_.value_size;
  }

  /// The scores of a tile; meanwhile memory is asked for the next one.
  void score(const KeyRange& range, const KeyRange& next, int64_t h, int64_t kv_head,
             const ForwardTile<Tile>& t) const {
    const int64_t key_stride = p_.kv_heads * p_.key_size;
    const int64_t value_stride = p_.kv_heads * p_.value_size;
    const auto scores = [&](int64_t from, int64_t to, const typename Tile::Operand* q) HWY_ATTR {
      for (int64_t j = from; j < to; j += kStep) {
        const int64_t ahead = std::clamp<int64_t>(next.size() - j, 0, kStep);
        prefetch_tile(key(next, kv_head) + j * key_stride, key_stride, ahead, p_.key_size);
        prefetch_tile(value(next, kv_head) + j * value_stride, value_stride, ahead, p_.value_size);
        product<false, false, Tile::kVectors>(D(), kStep, packs<Tile>(p_.key_size),
                                              t.keys + j * t.key_columns, t.key_columns, q,
                                              Tile::kRows, t.scores + j * Tile::kRows, Tile::kRows);
      }
    };
    const int64_t sinks = q_sink_ == nullptr ? 0 : p_.mask.sinks - range.begin;
    const int64_t seen_as_sinks = std::clamp<int64_t>(sinks, 0, range.size());
    const int64_t queries = h * t.key_columns * Tile::kRows;
    scores(0, seen_as_sinks, t.q_sink + queries);  // rounds up; the rest is written again
    scores(seen_as_sinks, range.size(), t.q + queries);
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
  void finish(const Item& item, const ForwardTile<Tile>& t, C* softmax) const {
    for (int64_t h = 0; h < together_; ++h) {
      const RunningSoftmax<Tile> running = softmax_at(softmax, h);
      if (item.rows > 0) {
        running.divide();
        transpose(running.out, Tile::kRows, p_.value_size, Tile::kRows, t.out_rows,
                  t.value_columns);
      }
      const hn::ScalableTag<C> d;
      const int64_t all = std::min(Tile::kRows, p_.queries * p_.group - item.first);
      for (int64_t r = 0; r < all; ++r) {
        const int64_t at = p_.index(item.b, item.kv_head + h, item.first + r);
        const bool real = r < item.rows;
        lse_[at] = real ? running.max[r] : C(0);
        each_vector(d, 0, p_.value_size, [&](At column) HWY_ATTR {
          const C* row = t.out_rows + r * t.value_columns + column.i;
          store(real ? hn::Load(d, row) : hn::Zero(d), d, out_ + at * p_.value_size, column);
        });
      }
    }
  }

  AttentionSizes p_;
  const S *q_, *q_sink_, *k_, *v_;
  const C* sink_logits_;
  C scale_;
  S* out_;
  C* lse_;
  int64_t tiles_;     // of rows, for each sequence and KV head
  int64_t together_;  // KV heads of an item
  int64_t items_, parts_;
  int64_t tile_scratch_ = 0, softmax_scratch_ = 0;
};

/// Few rows (decoding) get vectors of 8, of which a core may start twice as many as of 16.
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
        if (has_native_bf16()) {
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
  HWY_DYNAMIC_DISPATCH(AttentionForward)(in, out, lse);
}

}  // namespace headroom::kernels::cpu
#endif
