// Kernels that work on rows (norms, rotations, embedding, loss) in every type against their
// definitions in float64.
#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::Backend;
using kernels::Direction;
using kernels::Into;
using kernels::NormKind;
using kernels::RopeStyle;

using Sizes = std::pair<int64_t, int64_t>;  // rows, width
const std::vector<Sizes> kSizes = {{1, 3},    {3, 1},   {17, 17}, {3, 65},
                                   {65, 130}, {2, 300}, {400, 64}};

/// What a norm computes from one row before its weights, and the gradient through that.
struct NormRow {
  std::vector<double> n;
  double mean = 0, rstd = 0;
  NormRow(NormKind kind, const double* x, int64_t width, double eps) {
    const auto count = static_cast<double>(width);
    centered_ = kind == NormKind::layer_norm;
    for (int64_t i = 0; centered_ && i < width; ++i) mean += x[i] / count;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean) / count;
    rstd = 1 / std::sqrt(squares + eps);
    for (int64_t i = 0; i < width; ++i) n.push_back((x[i] - mean) * rstd);
  }
  /// d n_j / d x_i.
  double jacobian(size_t j, size_t i) const {
    const auto count = static_cast<double>(n.size());
    return rstd * ((i == j ? 1 : 0) - (centered_ ? 1 / count : 0) - n[i] * n[j] / count);
  }

 private:
  bool centered_;
};

class Rows : public ::testing::TestWithParam<Precision> {
 protected:
  DType type() const { return GetParam().type; }
  DType compute() const { return compute_type(type()); }
  double bound() const { return GetParam().tolerance; }
  /// For results of the compute type that are sums over rows of `type`.
  double sum_bound() const { return type() == DType::f64 ? 1e-12 : 2e-5; }
  DeviceOperand draw(const Shape& shape) { return {type(), shape, random_}; }
  DeviceOperand weights(const Shape& shape) { return {compute(), shape, random_}; }

  Backend& kernels_ = test_backend();
  std::mt19937 random_{4};
};

constexpr double kEps = 1e-2;  // not small, or rows of one number would be all rounding error

TEST_P(Rows, Norms) {
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    for (const Sizes& sizes : kSizes) {
      const int64_t rows = sizes.first, width = sizes.second;
      for (const bool all : {false, true}) {
        const DeviceOperand x = draw({rows, width}), residual = draw({rows, width});
        const DeviceOperand w = weights({width}), b = weights({width});
        Tensor sum = there(Tensor::zeros({rows, width}, type())), y = sum.clone(),
               stats = there(Tensor::zeros({rows, 2}, compute()));
        kernels_.norm(kind, x.tensor, all ? residual.tensor : Tensor(), all ? w.tensor : Tensor(),
                      all ? b.tensor : Tensor(), kEps, sum, y, stats);
        if (all) {
          expect_elements(
              sum, [&](int64_t i) { return x[i] + residual[i]; }, bound(), "sum");
        }
        const std::vector<double> in = all ? to_doubles(sum) : x.exact;
        std::vector<double> expected, expected_stats;
        for (int64_t r = 0; r < rows; ++r) {
          const NormRow row(kind, in.data() + r * width, width, kEps);
          expected_stats.insert(expected_stats.end(), {row.mean, row.rstd});
          for (int64_t i = 0; i < width; ++i) {
            const double n = row.n[static_cast<size_t>(i)];
            expected.push_back(all ? n * w[i] + b[i] : n);
          }
        }
        const auto at = [](const std::vector<double>& v) {
          return [&v](int64_t i) { return v[static_cast<size_t>(i)]; };
        };
        expect_elements(y, at(expected), 2 * bound(), "norm");
        expect_elements(stats, at(expected_stats), std::min(bound(), 1e-6), "stats");
      }
    }
  }
}

TEST_P(Rows, NormGradients) {
  for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    for (const Sizes& sizes : kSizes) {
      const int64_t rows = sizes.first, width = sizes.second;
      const DeviceOperand x = draw({rows, width}), dy = draw({rows, width}),
                          dsum = draw({rows, width});
      const DeviceOperand w = weights({width});
      std::vector<double> stats;
      std::vector<double> dx(x.exact.size()), dw(static_cast<size_t>(width)), db(dw);
      for (int64_t r = 0; r < rows; ++r) {
        const NormRow row(kind, x.exact.data() + r * width, width, kEps);
        stats.insert(stats.end(), {row.mean, row.rstd});
        for (int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<size_t>(r * width + i), column = static_cast<size_t>(i);
          dx[at] = dsum[r * width + i];
          for (size_t j = 0; j < row.n.size(); ++j) {
            const auto k = static_cast<int64_t>(j);
            dx[at] += dy[r * width + k] * w[k] * row.jacobian(j, column);
          }
          dw[column] += dy[r * width + i] * row.n[column];
          db[column] += dy[r * width + i];
        }
      }
      const DeviceOperand given(compute(), stats, {rows, 2});
      const auto backward = [&](const Into& to_x, const Into& to_w, const Into& to_b) {
        kernels_.norm_backward(kind, x.tensor, w.tensor, given.tensor, dy.tensor, dsum.tensor, to_x,
                               to_w, to_b);
      };
      const auto at = [](const std::vector<double>& v) {
        return [&v](int64_t i) { return v[static_cast<size_t>(i)]; };
      };
      expect_output(
          type(), {rows, width}, [&](const Into& to) { backward(to, {}, {}); }, at(dx), 2 * bound(),
          "dx");
      expect_output(
          compute(), {width}, [&](const Into& to) { backward({}, to, {}); }, at(dw), sum_bound(),
          "dw");
      expect_output(
          compute(), {width}, [&](const Into& to) { backward({}, {}, to); }, at(db), sum_bound(),
          "db");
    }
  }
}

TEST_P(Rows, AGradientMayOverwriteWhatItCameFrom) {
  const DeviceOperand x = draw({3, 37}), dy = draw({3, 37});
  const Tensor stats = there(as(compute(), {0.1, 1.1, 0.2, 0.9, 0, 2}, {3, 2}));
  const auto zeros = [&](const Shape& shape, DType type) {
    return there(Tensor::zeros(shape, type));
  };
  const Tensor apart = zeros({3, 37}, type()), dw_apart = zeros({37}, compute()),
               dw = zeros({37}, compute());
  kernels_.norm_backward(NormKind::layer_norm, x.tensor, {}, stats, dy.tensor, {}, {apart, false},
                         {dw_apart, false}, {});
  kernels_.norm_backward(NormKind::layer_norm, x.tensor, {}, stats, dy.tensor, {},
                         {dy.tensor, false}, {dw, false}, {});
  EXPECT_EQ(to_doubles(dy.tensor), to_doubles(apart));
  EXPECT_EQ(to_doubles(dw), to_doubles(dw_apart));
}

TEST_P(Rows, RotationsByPosition) {
  const std::vector<int32_t> positions = {0, 1, 2, 63, 64, 4000, 100000};
  const auto count = static_cast<int64_t>(positions.size());
  for (const int64_t size : {2, 6, 32, 34, 66}) {
    Tensor table = there(Tensor::zeros({count, size / 2, 2}, compute()));
    kernels_.rope_table(there(Tensor::from(positions, {count})), 10000, table);
    const auto angle = [&](int64_t row, int64_t pair) {
      return positions[static_cast<size_t>(row % count)] *
             std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(size));
    };
    expect_elements(
        table,
        [&](int64_t i) {
          const double a = angle(i / size, i / 2 % (size / 2));
          return i % 2 == 0 ? std::cos(a) : std::sin(a);
        },
        type() == DType::f64 ? 1e-10 : 1e-7, "table");
    const int64_t rows = 2 * count, heads = 3;  // the table serves two sequences
    const DeviceOperand x = draw({rows, heads, size});
    for (const RopeStyle style : {RopeStyle::half, RopeStyle::interleaved}) {
      for (const Direction direction : {Direction::forward, Direction::backward}) {
        const auto expected = [&](int64_t i) {
          const int64_t column = i % size, half = size / 2, first = i - column;
          const bool by_half = style == RopeStyle::half;
          const int64_t pair = by_half ? column % half : column / 2;
          const double a = x[first + (by_half ? pair : 2 * pair)],
                       b = x[first + (by_half ? pair + half : 2 * pair + 1)];
          const double turn =
              (direction == Direction::forward ? 1 : -1) * angle(i / size / heads, pair);
          return (by_half ? column < half : column % 2 == 0)
                     ? a * std::cos(turn) - b * std::sin(turn)
                     : a * std::sin(turn) + b * std::cos(turn);
        };
        expect_output(
            type(), x.tensor.shape(),
            [&](const Into& y) { kernels_.rope(x.tensor, table, style, direction, y); }, expected,
            type() == DType::f64 ? 1e-9 : bound(), "rope");
      }
    }
  }
}

TEST_P(Rows, Embedding) {
  constexpr int64_t kVocabulary = 7;
  for (const Sizes& sizes : kSizes) {
    const int64_t rows = sizes.first, width = sizes.second;
    std::vector<int32_t> ids;
    for (int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<int32_t>(random_() % kVocabulary));
    const Tensor which = there(Tensor::from(ids, {rows}));
    const DeviceOperand w = weights({kVocabulary, width}), dy = draw({rows, width});
    Tensor y = there(Tensor::zeros({rows, width}, type()));
    kernels_.embedding(which, w.tensor, y);
    expect_elements(
        y, [&](int64_t i) { return w[ids[static_cast<size_t>(i / width)] * width + i % width]; },
        bound(), "embedding");
    const auto expected = [&](int64_t i) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) {
        sum += ids[static_cast<size_t>(r)] == i / width ? dy[r * width + i % width] : 0;
      }
      return sum;
    };
    expect_output(
        compute(), {kVocabulary, width},
        [&](const Into& dw) { kernels_.embedding_backward(which, dy.tensor, dw); }, expected,
        sum_bound(), "embedding_backward");
  }
}

/// Gradients in the activation type, and over the logits themselves in the compute type.
TEST_P(Rows, CrossEntropy) {
  for (const Sizes& sizes : kSizes) {
    const int64_t rows = sizes.first, width = sizes.second;
    for (const double size : {1.0, 1000.0}) {
      std::vector<double> values = normals(rows * width, random_);
      for (double& x : values) x *= size;
      const DeviceOperand logits(compute(), values, {rows, width});
      std::vector<int32_t> targets;
      for (int64_t r = 0; r < rows; ++r) {
        targets.push_back(
            r % 4 == 1 ? -1 : static_cast<int32_t>(random_() % static_cast<uint64_t>(width)));
      }
      std::vector<double> losses(static_cast<size_t>(rows)), gradients(values.size());
      for (int64_t r = 0; r < rows; ++r) {
        const double* row = logits.exact.data() + r * width;
        const int32_t target = targets[static_cast<size_t>(r)];
        if (target < 0) continue;
        const double top = *std::max_element(row, row + width);
        double total = 0;
        for (int64_t i = 0; i < width; ++i) total += std::exp(row[i] - top);
        losses[static_cast<size_t>(r)] = top + std::log(total) - row[target];
        for (int64_t i = 0; i < width; ++i) {
          gradients[static_cast<size_t>(r * width + i)] =
              0.7 * (std::exp(row[i] - top) / total - (i == target ? 1 : 0));
        }
      }
      const auto at = [](const std::vector<double>& v) {
        return [&v](int64_t i) { return v[static_cast<size_t>(i)]; };
      };
      // Logits near 1000 in f32 are known to 6e-5, and so are their differences.
      const double compute_bound = type() == DType::f64 ? 1e-12 : size * 1e-6;
      const Tensor to = there(Tensor::from(targets, {rows}));
      Tensor loss = there(Tensor::zeros({rows}, compute())), own = logits.tensor.clone(),
             other = there(Tensor::zeros({rows, width}, type())), none;
      kernels_.cross_entropy(logits.tensor, to, 0.7, loss, none);
      expect_elements(loss, at(losses), compute_bound, "losses");
      loss.zero();
      kernels_.cross_entropy(own, to, 0.7, loss, own);
      expect_elements(loss, at(losses), compute_bound, "losses beside gradients");
      expect_elements(own, at(gradients), compute_bound, "gradient over the logits");
      kernels_.cross_entropy(logits.tensor, to, 0.7, loss, other);
      expect_elements(other, at(gradients), std::max(compute_bound, bound()), "gradient");
    }
  }
}

TEST_P(Rows, SumsOfLosses) {
  for (const int64_t rows : {1, 3, 65, 4097}) {
    const DeviceOperand x = weights({rows});
    Tensor total = there(Tensor::zeros({}, compute()));
    kernels_.sum(x.tensor, 0.3, total);
    double expected = 0;
    for (const double value : x.exact) expected += value;
    EXPECT_NEAR(total.item(), 0.3 * expected, type() == DType::f64 ? 1e-12 : 1e-5) << rows;
  }
}

TEST_P(Rows, DoNotDependOnTheNumberOfThreads) {
  constexpr int64_t kRows = 300, kWidth = 201;
  const DeviceOperand x = draw({kRows, kWidth}), dy = draw({kRows, kWidth});
  const DeviceOperand w = weights({kWidth}), logits = weights({kRows, kWidth});
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < kRows; ++r) ids.push_back(static_cast<int32_t>(random_() % 7));
  const Tensor which = there(Tensor::from(ids, {kRows}));
  expect_same_for_any_threads([&] {
    const Shape shape{kRows, kWidth};
    Tensor sum, y = there(Tensor::zeros(shape, type())), dx = y.clone(), dlogits = y.clone(),
                stats = there(Tensor::zeros({kRows, 2}, compute())),
                losses = there(Tensor::zeros({kRows}, compute())),
                dw = there(Tensor::zeros({kWidth}, compute())), db = dw.clone(),
                table = there(Tensor::zeros({7, kWidth}, compute()));
    kernels_.norm(NormKind::layer_norm, x.tensor, {}, w.tensor, {}, kEps, sum, y, stats);
    kernels_.norm_backward(NormKind::layer_norm, x.tensor, w.tensor, stats, dy.tensor, {},
                           {dx, false}, {dw, false}, {db, false});
    kernels_.embedding_backward(which, dy.tensor, {table, false});
    kernels_.cross_entropy(logits.tensor, which, 1.0, losses, dlogits);
    return std::vector<Tensor>{y, stats, dx, dw, db, table, losses, dlogits};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Rows, ::testing::ValuesIn(kActivationTypes), name_of_precision);

}  // namespace
}  // namespace headroom::testing
