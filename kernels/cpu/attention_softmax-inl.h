// The online softmax of a tile of rows (Milakov and Gimelshein, arXiv 1805.02867): a maximum, a sum
// and an output that stay right as keys arrive block by block; and the memory that the forward pass
// has for a tile. Included once per SIMD target.

#if defined(HEADROOM_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_ATTENTION_SOFTMAX_INL_H_
#undef HEADROOM_ATTENTION_SOFTMAX_INL_H_
#else
#define HEADROOM_ATTENTION_SOFTMAX_INL_H_
#endif

#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// A score that no real one comes near: its exponential is 0 beside any other. A power of 2, so
/// that its products are exact.
inline constexpr double kHidden = -0x1p100;

/// The running softmax of a tile's rows over the keys seen so far.
template <class Tile>
class RunningSoftmax {
 public:
  using C = typename Tile::C;
  using D = typename Tile::D;

  /// `unit`: what a score of 1 means in nats.
  RunningSoftmax(Pieces<C>& pieces, int64_t value_size, C unit)
      : out(pieces.take(round_up(value_size, kStep) * Tile::kRows)),
        max(pieces.take(Tile::kRows)),
        sum(pieces.take(Tile::kRows)),
        value_size_(value_size),
        unit_(unit * kNat<C>) {}

  C* out;  // (Dv, rows): sum over keys of exp(score - max) * value
  C* max;  // as power_of() takes it: the largest score times its unit
  C* sum;

  /// weights (keys, rows) = exp(scores - max), after max, sum and out have moved to the new
  /// maximum; their values are still to be added to out. A row whose keys are all hidden so far
  /// counts them as 1 each, until its first real key scales that by 0. Numbers may overwrite the
  /// scores; pairs are of neighbouring keys.
  void take(const C* scores, int64_t keys, typename Tile::Operand* weights) const {
    const D d;
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const auto unit = hn::Set(d, unit_), old_max = hn::Load(d, max + r);
      auto new_max = hn::Set(d, static_cast<C>(kHidden));
      for (int64_t j = 0; j < keys; ++j) {
        new_max = hn::Max(new_max, hn::Load(d, scores + j * Tile::kRows + r));
      }
      new_max = hn::Max(old_max, hn::Mul(new_max, unit));
      const auto shrink = power_of(d, hn::Sub(old_max, new_max));
      auto new_sum = hn::Mul(shrink, hn::Load(d, sum + r));
      const auto take_one = [&](int64_t j) HWY_ATTR {
        const auto score = hn::Load(d, scores + j * Tile::kRows + r);
        const auto weight = power_of(d, hn::MulSub(score, unit, new_max));
        new_sum = hn::Add(new_sum, weight);
        return weight;
      };
      if constexpr (Tile::kPack == 1) {
        for (int64_t j = 0; j < keys; ++j) {
          hn::Store(take_one(j), d, weights + j * Tile::kRows + r);
        }
      } else {
        for (int64_t j = 0; j < keys; j += 2) {
          const auto low = take_one(j), high = j + 1 < keys ? take_one(j + 1) : hn::Zero(d);
          hn::Store(make_pairs(d, low, high), hn::RebindToUnsigned<D>(),
                    weights + j / 2 * Tile::kRows + r);
        }
      }
      hn::Store(new_max, d, max + r);
      hn::Store(new_sum, d, sum + r);
      scale_out(r, shrink);
    }
  }

  /// Adds what another saw of other keys.
  void add(const RunningSoftmax& from) const {
    const D d;
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const auto from_max = hn::Load(d, from.max + r), my_max = hn::Load(d, max + r);
      const auto new_max = hn::Max(from_max, my_max);
      const auto by_from = power_of(d, hn::Sub(from_max, new_max));
      const auto by_mine = power_of(d, hn::Sub(my_max, new_max));
      const auto join = [&](const C* x, C* y) HWY_ATTR {
        hn::Store(hn::MulAdd(by_from, hn::Load(d, x), hn::Mul(by_mine, hn::Load(d, y))), d, y);
      };
      join(from.sum + r, sum + r);
      for (int64_t i = 0; i < value_size_; ++i) {
        join(from.out + i * Tile::kRows + r, out + i * Tile::kRows + r);
      }
      hn::Store(new_max, d, max + r);
    }
  }

  /// Leaves the outputs in `out` and the log-sum-exp, in nats, in `max`.
  void divide() const {
    const D d;
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const auto total = hn::Load(d, sum + r);
      scale_out(r, hn::Div(hn::Set(d, C(1)), total));
      const auto nats = hn::Set(d, 1 / kNat<C>);
      hn::Store(hn::MulAdd(hn::Load(d, max + r), nats, hn::Log(d, total)), d, max + r);
    }
  }

 private:
  HWY_INLINE void scale_out(int64_t r, hn::Vec<D> by) const {
    const D d;
    for (int64_t i = 0; i < value_size_; ++i) {
      C* o = out + i * Tile::kRows + r;
      hn::Store(hn::Mul(by, hn::Load(d, o)), d, o);
    }
  }

  int64_t value_size_;
  C unit_;  // of scores, as power_of() takes them
};

/// A thread's memory for an item.
template <class Tile>
struct ForwardTile {
  using C = typename Tile::C;
  using Operand = typename Tile::Operand;
  ForwardTile(Pieces<C>& pieces, const AttentionSizes& p)
      : key_columns(packed_columns<Tile>(p.key_size)),
        value_columns(padded<C>(p.value_size)),
        packed_value_columns(packed_columns<Tile>(p.value_size)),
        q_rows(pieces.template take_as<Operand>(Tile::kRows * key_columns)),
        out_rows(pieces.take(Tile::kRows * value_columns)),
        q(pieces.template take_as<Operand>(key_columns * Tile::kRows)),
        q_sink(pieces.template take_as<Operand>(key_columns * Tile::kRows)),
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
  Operand* q;           // (Dk, rows)
  Operand* q_sink;      // (Dk, rows): what the sink keys see
  Operand* keys;        // (keys, Dk)
  Operand* value_rows;  // (keys, Dv), packed along Dv
  Operand* values;      // the same, packed along the keys
  C* scores;            // (keys, rows)
  Operand* weights;     // (keys, rows)
  C* positions;         // of the rows
};

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
