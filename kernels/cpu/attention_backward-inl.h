// What the backward pass of attention holds of a tile, and how the softmax's gradient is shared out
// over it. Included once per SIMD target, as simd-inl.h.

#if defined(HEADROOM_ATTENTION_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADROOM_ATTENTION_BACKWARD_INL_H_
#undef HEADROOM_ATTENTION_BACKWARD_INL_H_
#else
#define HEADROOM_ATTENTION_BACKWARD_INL_H_
#endif

#include "kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::cpu::HWY_NAMESPACE {

/// A thread's memory for one sequence and KV head, and one tile of its rows. What a product sums
/// over keys, rows or columns is packed along that axis: with numbers for operands two names may
/// mean one piece.
template <class Tile>
struct BackwardTile {
  using C = typename Tile::C;
  using Operand = typename Tile::Operand;
  BackwardTile(Pieces<C>& pieces, const AttentionSizes& p)
      : key_columns(padded<C>(p.key_size)),
        value_columns(padded<C>(p.value_size)),
        packed_key_columns(packed_columns<Tile>(p.key_size)),
        packed_value_columns(packed_columns<Tile>(p.value_size)),
        q(pieces.template take_as<Operand>(Tile::kRows * packed_key_columns)),
        q_t(pieces.template take_as<Operand>(Tile::kRows * packed_key_columns)),
        dout(pieces.template take_as<Operand>(Tile::kRows * packed_value_columns)),
        dout_t(pieces.template take_as<Operand>(Tile::kRows * packed_value_columns)),
        dq(pieces.take(Tile::kRows * key_columns)),
        dq_t(pieces.take(Tile::kRows * key_columns)),
        scores(pieces.take(kTileKeys * Tile::kRows)),
        dweights(pieces.take(kTileKeys * Tile::kRows)),
        lse(pieces.take(Tile::kRows)),
        delta(pieces.take(Tile::kRows)),
        positions(pieces.take(Tile::kRows)) {
    const int64_t positions_held = p.blocks * KVView::kBlock + kStep;
    keys = pieces.template take_as<Operand>(positions_held * packed_key_columns);
    values = pieces.template take_as<Operand>(positions_held * packed_value_columns);
    dk = pieces.take(positions_held * key_columns);
    dv = pieces.take(positions_held * value_columns);
    if constexpr (Tile::kPack == 1) {
      q_pairs = q, dout_pairs = dout, key_pairs = keys;
      weights = scores, dscores = dscores_by_key = dweights;
    } else {
      q_pairs = pieces.template take_as<Operand>(Tile::kRows / 2 * key_columns);
      dout_pairs = pieces.template take_as<Operand>(Tile::kRows / 2 * value_columns);
      key_pairs = pieces.template take_as<Operand>(positions_held / 2 * key_columns);
      weights = pieces.template take_as<Operand>(kTileKeys * Tile::kRows / 2);
      dscores = pieces.template take_as<Operand>(kTileKeys * Tile::kRows / 2);
      dscores_by_key = pieces.template take_as<Operand>(kTileKeys / 2 * Tile::kRows);
    }
  }
  int64_t key_columns, value_columns, packed_key_columns, packed_value_columns;
  Operand *q, *q_t, *q_pairs;  // (rows, Dk), packed along Dk; its transpose; along the rows
  Operand *dout, *dout_t, *dout_pairs;  // (rows, Dv), likewise
  C *dq, *dq_t;                         // (rows, Dk) and its transpose, to be scaled
  C* scores;                            // (keys, rows)
  C* dweights;                          // (keys, rows): gradients of the softmax
  Operand* weights;                     // (keys, rows): the softmax, packed along the rows
  Operand *dscores, *dscores_by_key;    // (keys, rows), packed along the rows; along the keys
  C* lse;                               // of the rows, as power_of() takes it
  C* delta;      // of the rows: sum of dout * out, which is that of weight * dweight over keys
  C* positions;  // of the rows
  // For every position of the sequence's blocks, gathered once: their rows are far apart in memory.
  Operand *keys, *key_pairs;  // (positions, Dk), packed along Dk; along the positions
  Operand* values;            // (positions, Dv), packed along Dv
  C *dk, *dv;                 // summed over the tiles in order; dk is to be scaled
};

/// Turns a tile's scores and gradients of weights into weights and gradients of scores, one vector
/// of rows and one key at a time. `unit`: what a score of 1 is to power_of().
template <class Tile>
class SoftmaxGradient {
 public:
  using C = typename Tile::C;
  using D = typename Tile::D;

  SoftmaxGradient(const AttentionMask& mask, C unit, const KeyRange& range, int64_t origin,
                  const BackwardTile<Tile>& t, int64_t first)
      : mask_(mask),
        unit_(unit),
        range_(range),
        origin_(origin),
        scores_(t.scores + first),
        dweights_(t.dweights + first),
        lse_(hn::Load(D(), t.lse + first)),
        delta_(hn::Load(D(), t.delta + first)),
        positions_(hn::Load(D(), t.positions + first)) {}

  struct Share {
    hn::Vec<D> weight, dscore;
  };
  /// Nothing for the key after the last.
  HWY_INLINE Share of(int64_t j) const {
    const D d;
    if (j == range_.size()) {
      return {hn::Zero(d), hn::Zero(d)};
    }
    const auto score = hn::Load(d, scores_ + j * Tile::kRows);
    const auto dweight = hn::Load(d, dweights_ + j * Tile::kRows);
    auto weight = power_of(d, hn::MulSub(score, hn::Set(d, unit_), lse_));
    if (range_.masked) {
      const auto seen = sees(d, mask_, positions_, range_.begin + j, origin_);
      weight = hn::IfThenElseZero(seen, weight);
    }
    return {weight, hn::Mul(weight, hn::Sub(dweight, delta_))};
  }

 private:
  const AttentionMask& mask_;
  C unit_;
  const KeyRange& range_;
  int64_t origin_;
  const C *scores_, *dweights_;
  hn::Vec<D> lse_, delta_, positions_;
};

/// Fills a tile's weights and dscores; numbers overwrite the scores and the weights' gradients.
template <class Tile>
HWY_INLINE void share_out(const AttentionMask& mask, typename Tile::C unit, const KeyRange& range,
                          int64_t origin, const BackwardTile<Tile>& t) {
  const typename Tile::D d;
  if constexpr (Tile::kPack == 1) {
    for (int64_t r = 0; r < Tile::kRows; r += Tile::kLanes) {
      const SoftmaxGradient<Tile> gradient(mask, unit, range, origin, t, r);
      for (int64_t j = 0; j < range.size(); ++j) {
        const auto share = gradient.of(j);
        hn::Store(share.weight, d, t.weights + j * Tile::kRows + r);
        hn::Store(share.dscore, d, t.dscores + j * Tile::kRows + r);
      }
    }
  } else {
    static_assert(Tile::kVectors == 2);
    const hn::RebindToUnsigned<typename Tile::D> pairs;
    const SoftmaxGradient<Tile> low(mask, unit, range, origin, t, 0);
    const SoftmaxGradient<Tile> high(mask, unit, range, origin, t, Tile::kLanes);
    for (int64_t j = 0; j < range.size(); j += 2) {
      const auto low0 = low.of(j), low1 = low.of(j + 1);
      const auto high0 = high.of(j), high1 = high.of(j + 1);
      const int64_t at = j * Tile::kRowOperands, next = at + Tile::kRowOperands;
      hn::Store(pairs_of_lanes(d, low0.weight, high0.weight), pairs, t.weights + at);
      hn::Store(pairs_of_lanes(d, low1.weight, high1.weight), pairs, t.weights + next);
      hn::Store(pairs_of_lanes(d, low0.dscore, high0.dscore), pairs, t.dscores + at);
      hn::Store(pairs_of_lanes(d, low1.dscore, high1.dscore), pairs, t.dscores + next);
      auto* by_key = t.dscores_by_key + j / 2 * Tile::kRows;
      hn::Store(make_pairs(d, low0.dscore, low1.dscore), pairs, by_key);
      hn::Store(make_pairs(d, high0.dscore, high1.dscore), pairs, by_key + Tile::kLanes);
    }
  }
}

}  // namespace headroom::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
