// The GPU's norms, sums over rows, embeddings and quantisers in the harness, in every type and at
// odd sizes, against the definitions in float64.
#include "kernels/cuda/rows.h"

#include <bit>

#include "tests/kernel_operands.h"
#include "tests/simt/device_memory.h"

namespace headroom::testing {
namespace {

namespace cuda = kernels::cuda;
using kernels::Into;
using kernels::NormKind;

class RowSums : public ::testing::TestWithParam<Precision> {
 protected:
  DType type() const { return GetParam().type; }
  double bound() const { return GetParam().tolerance; }
  DType compute() const { return compute_type(type()); }
  double compute_bound() const { return compute() == DType::f64 ? 1e-12 : 3e-5; }
  Operand draw(const Shape& shape, DType type) {
    Operand x(type, shape, random_);
    x.tensor = on_device(x.tensor);
    return x;
  }
  Operand draw(const Shape& shape) { return draw(shape, type()); }
  /// Runs a kernel that overwrites its output, on one full of NaN, and adds to one that has
  /// numbers.
  void expect_into(DType out, const Shape& shape, const std::function<void(const Into&)>& run,
                   const Elements& expected, double tolerance, const char* what) {
    const Tensor fresh =
        on_device(as(out, std::vector<double>(static_cast<size_t>(shape.numel()), NAN), shape));
    run({fresh, false});
    expect_elements(fresh, expected, tolerance, what);
    const Operand before = draw(shape, out);
    run({before.tensor, true});
    expect_elements(
        before.tensor, [&](int64_t i) { return before[i] + expected(i); }, tolerance, what);
  }
  std::mt19937 random_{6};
};

/// Widths below, at and above a warp and a block; rows that make one stretch and several.
struct Size {
  int64_t rows, width;
};
const std::vector<Size> kSizes = {{1, 1}, {3, 32}, {5, 37}, {131, 33}, {2, 300}};

double column_sum(const Size& size, const std::function<double(int64_t)>& element, int64_t column) {
  double sum = 0;
  for (int64_t r = 0; r < size.rows; ++r) sum += element(r * size.width + column);
  return sum;
}

TEST_P(RowSums, OfColumns) {
  for (const Size& size : kSizes) {
    const Operand x = draw({size.rows, size.width});
    expect_into(
        compute(), {size.width}, [&](const Into& out) { cuda::sum_rows(x.tensor, out); },
        [&](int64_t c) {
          return column_sum(
              size, [&](int64_t i) { return x[i]; }, c);
        },
        compute_bound(), "sum_rows");
  }
}

/// Mean and 1 / sd of each row of x.
std::vector<double> statistics(NormKind kind, const Size& size, const Elements& x, double eps) {
  std::vector<double> stats;
  for (int64_t r = 0; r < size.rows; ++r) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < size.width; ++i) mean += x(r * size.width + i);
    mean = kind == NormKind::layer_norm ? mean / static_cast<double>(size.width) : 0;
    for (int64_t i = 0; i < size.width; ++i) {
      squares += std::pow(x(r * size.width + i) - mean, 2);
    }
    stats.push_back(mean);
    stats.push_back(1 / std::sqrt(squares / static_cast<double>(size.width) + eps));
  }
  return stats;
}

TEST_P(RowSums, NormsOfBothKindsAfterAResidual) {
  constexpr double kEps = 0.01;
  for (const Size& size : kSizes) {
    for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
      for (const bool whole : {false, true}) {  // with a residual, weights and bias
        const Shape shape = {size.rows, size.width};
        const Operand x = draw(shape), other = draw(shape);
        const Operand w = draw({size.width}, compute()), b = draw({size.width}, compute());
        const Tensor none;
        Tensor sum = on_device(x.tensor), y = on_device(x.tensor);
        Tensor stats = on_device(Tensor::zeros({size.rows, 2}, compute()));
        cuda::norm(kind, x.tensor, whole ? other.tensor : none, whole ? w.tensor : none,
                   whole ? b.tensor : none, kEps, sum, y, stats);
        expect_elements(
            sum, [&](int64_t i) { return x[i] + (whole ? other[i] : 0); }, bound(), "sum");
        const std::vector<double> in = to_doubles(sum);  // as it was rounded
        const auto element = [&](int64_t i) { return in[static_cast<size_t>(i)]; };
        const std::vector<double> want = statistics(kind, size, element, kEps);
        const auto stat = [&](int64_t i) { return want[static_cast<size_t>(i)]; };
        expect_elements(stats, stat, compute_bound(), "stats");
        expect_elements(
            y,
            [&](int64_t i) {
              const int64_t r = i / size.width, c = i % size.width;
              const double n = (element(i) - stat(2 * r)) * stat(2 * r + 1);
              return whole ? n * w[c] + b[c] : n;
            },
            2 * bound(), "norm");
      }
    }
  }
}

TEST_P(RowSums, GradientOfNorms) {
  for (const Size& size : kSizes) {
    for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
      const Shape shape = {size.rows, size.width};
      const Operand x = draw(shape), dy = draw(shape), dsum = draw(shape);
      const Operand w = draw({size.width}, compute());
      const std::vector<double> exact = statistics(
          kind, size, [&](int64_t i) { return x[i]; }, 0.01);
      const Operand stats = [&] {
        Operand s(compute(), exact, {size.rows, 2});
        s.tensor = on_device(s.tensor);
        return s;
      }();
      const auto n = [&](int64_t i) {
        const int64_t r = i / size.width;
        return (x[i] - stats[2 * r]) * stats[2 * r + 1];
      };
      const auto g = [&](int64_t i) { return dy[i] * w[i % size.width]; };
      const auto dx = [&](int64_t i) {
        const int64_t first = i - i % size.width;
        double mean_g = 0, mean_gn = 0;
        for (int64_t j = first; j < first + size.width; ++j) {
          mean_g += kind == NormKind::layer_norm ? g(j) / static_cast<double>(size.width) : 0;
          mean_gn += g(j) * n(j) / static_cast<double>(size.width);
        }
        return stats[2 * (i / size.width) + 1] * (g(i) - mean_g - n(i) * mean_gn) + dsum[i];
      };
      const auto back = [&](const Into& into_x, const Into& into_w, const Into& into_b) {
        cuda::norm_backward(kind, x.tensor, w.tensor, stats.tensor, dy.tensor, dsum.tensor, into_x,
                            into_w, into_b);
      };
      expect_into(
          type(), shape, [&](const Into& out) { back(out, {}, {}); }, dx, 4 * bound(), "dx");
      expect_into(
          compute(), {size.width}, [&](const Into& out) { back({}, out, {}); },
          [&](int64_t c) {
            return column_sum(
                size, [&](int64_t i) { return dy[i] * n(i); }, c);
          },
          compute_bound(), "dw");
      expect_into(
          compute(), {size.width}, [&](const Into& out) { back({}, {}, out); },
          [&](int64_t c) {
            return column_sum(
                size, [&](int64_t i) { return dy[i]; }, c);
          },
          compute_bound(), "db");
    }
  }
}

TEST_P(RowSums, GradientOverwritesWhatItCameFrom) {
  const Operand x = draw({3, 37}), dy = draw({3, 37});
  const Tensor stats = on_device(as(compute(), {0.1, 1.1, 0.2, 0.9, 0, 2}, {3, 2})), none;
  const Tensor apart = on_device(x.tensor), dw_apart = on_device(Tensor::zeros({37}, compute()));
  const Tensor dw = on_device(Tensor::zeros({37}, compute()));
  cuda::norm_backward(NormKind::layer_norm, x.tensor, none, stats, dy.tensor, none, {apart, false},
                      {dw_apart, false}, {});
  cuda::norm_backward(NormKind::layer_norm, x.tensor, none, stats, dy.tensor, none,
                      {dy.tensor, false}, {dw, false}, {});
  EXPECT_EQ(to_doubles(dy.tensor), to_doubles(apart));
  EXPECT_EQ(to_doubles(dw), to_doubles(dw_apart));
}

TEST_P(RowSums, EmbeddingAndItsScatterAdd) {
  for (const int64_t width : {1, 37, 300}) {
    std::vector<int32_t> numbers;  // index 0 often, 2 never, some 32 and more rows apart
    for (int32_t i = 0; i < 71; ++i) numbers.push_back(i % 3 == 0 ? 0 : i % 5 == 2 ? 5 : i % 2);
    const auto rows = std::ssize(numbers);
    const Tensor ids = on_device(Tensor::from(numbers, {rows}));
    const Operand w = draw({6, width}, compute()), dy = draw({rows, width});
    Tensor y = on_device(Tensor::zeros({rows, width}, type()));
    cuda::embedding(ids, w.tensor, y);
    const auto id = [&](int64_t row) { return numbers[static_cast<size_t>(row)]; };
    expect_elements(
        y, [&](int64_t i) { return w[id(i / width) * width + i % width]; }, bound(), "embedding");
    expect_into(
        compute(), {6, width},
        [&](const Into& out) { cuda::embedding_backward(ids, dy.tensor, out); },
        [&](int64_t i) {
          double sum = 0;
          for (int64_t r = 0; r < rows; ++r) {
            sum += id(r) == i / width ? dy[r * width + i % width] : 0;
          }
          return sum;
        },
        compute_bound(), "embedding_backward");
  }
}

TEST_P(RowSums, HadamardMatrixOfTheLargestPowerOfTwo) {
  for (const int64_t width : {1, 6, 64, 96, 1024}) {
    const Operand x = draw({2, width});
    const int64_t size = width & -width;
    Tensor y = on_device(Tensor::zeros({2, width}, type()));
    cuda::hadamard(x.tensor, y);
    expect_elements(
        y,
        [&](int64_t i) {
          double sum = 0;
          for (int64_t j = 0; j < size; ++j) {
            const auto common = static_cast<uint64_t>(i % size & j);
            sum += (std::popcount(common) % 2 == 0 ? 1 : -1) * x[i - i % size + j];
          }
          return sum / std::sqrt(static_cast<double>(size));
        },
        2 * bound(), "hadamard");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RowSums, ::testing::ValuesIn(kActivationTypes), name_of_precision);

TEST(QuantizedRows, ScaleAndNearestInteger) {
  for (const int64_t width : {1, 37, 300}) {
    std::mt19937 random(8);
    std::vector<double> numbers = normals(3 * width, random);
    std::fill_n(numbers.begin() + width, width, 0);
    const Tensor x = on_device(as(DType::f32, numbers, {3, width}));
    kernels::Weights q = {on_device(Tensor::zeros({3, width}, DType::i8)),
                          on_device(Tensor::zeros({3}, DType::f32))};
    cuda::quantize_rows(x, q);
    for (int64_t r = 0; r < 3; ++r) {
      const float* row = x.data<float>() + r * width;
      float most = 0;
      for (int64_t i = 0; i < width; ++i) most = std::max(most, std::abs(row[i]));
      const float scale = most / 127;
      ASSERT_EQ(q.scales.data<float>()[r], scale);
      for (int64_t i = 0; i < width; ++i) {
        const float want = scale > 0 ? std::nearbyint(row[i] / scale) : 0;
        ASSERT_EQ(q.values.data<int8_t>()[r * width + i], static_cast<int8_t>(want));
      }
    }
  }
}

TEST(RopeTable, CosinesAndSinesOfPositions) {
  const std::vector<int32_t> numbers = {0, 7, 4091};
  const Tensor positions = on_device(Tensor::from(numbers, {3}));
  for (const DType type : {DType::f64, DType::f32}) {
    Tensor table = on_device(Tensor::zeros({3, 5, 2}, type));
    cuda::rope_table(positions, 10000, table);
    expect_elements(
        table,
        [&](int64_t i) {
          const double power = -static_cast<double>(i / 2 % 5) / 5;
          const double angle = numbers[static_cast<size_t>(i / 10)] * std::pow(10000.0, power);
          return i % 2 == 0 ? std::cos(angle) : std::sin(angle);
        },
        type == DType::f64 ? 1e-15 : 6e-8, "rope_table");
  }
}

}  // namespace
}  // namespace headroom::testing
