// How a cache keeps keys and values: what is written, against the definition of each type, and
// attention over it, against attention over the numbers that were written.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "tests/attention_problems.h"
#include "tests/reference.h"

namespace headroom {
namespace {

using kernels::KVCode;
using testing::as;
using testing::AttentionInputs;
using testing::normals;
using testing::Problem;

/// A way to keep a vector: elements of a type, or i8 codes of some bits.
struct Kind {
  const char* name;
  DType type;
  int64_t bits = 0;
};
const std::vector<Kind> kKinds = {{"f32", DType::f32},
                                  {"bf16", DType::bf16},
                                  {"f16", DType::f16},
                                  {"int8", DType::i8, 8},
                                  {"int4", DType::i8, 4}};

struct Stored {
  Tensor values;
  KVCode code;
};

/// Empty memory for x (n, K, D), and then x in it.
Stored stored(const Kind& kind, const Tensor& x) {
  const int64_t D = x.dim(2);
  Stored s;
  if (kind.bits == 0) {
    s.values = Tensor::zeros(x.shape(), kind.type);
  } else {
    s.values = Tensor::zeros(x.shape().with_last(kind.bits == 4 ? (D + 1) / 2 : D), DType::i8);
    s.code = {.scales = Tensor::zeros(x.shape().with_last((D + 31) / 32), DType::bf16),
              .bits = kind.bits};
  }
  Tensor values = testing::there(s.values);
  const KVCode code{testing::there(s.code.scales), s.code.bits};
  std::vector<int32_t> slots(static_cast<size_t>(x.dim(0)));
  std::iota(slots.begin(), slots.end(), 0);
  testing::test_backend().store_kv(testing::there(x),
                                   testing::there(Tensor::from(slots, {x.dim(0)})), values, code);
  return {testing::here(values), {testing::here(code.scales), code.bits}};
}

double scale_at(const Stored& s, int64_t vector, int64_t i) {
  return static_cast<double>(
      static_cast<float>(s.code.scales.data<bf16>()[vector * s.code.scales.dim(2) + i / 32]));
}

/// The integer that number i of a vector is coded as.
int code_at(const Stored& s, int64_t vector, int64_t i) {
  const auto* bytes = s.values.data<int8_t>() + vector * s.values.dim(2);
  if (s.code.bits == 8) return bytes[i];
  const int nibble = static_cast<uint8_t>(bytes[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

/// What the memory says, by the definition of its type.
std::vector<double> decoded(const Stored& s, const Shape& shape) {
  if (!s.code.scales.defined()) {
    if (s.values.dtype() != DType::f16) return to_doubles(s.values);
    std::vector<double> numbers;
    for (const f16 x : s.values.to_vector<f16>()) numbers.push_back(static_cast<float>(x));
    return numbers;
  }
  std::vector<double> numbers;
  for (int64_t vector = 0; vector < shape.dim(0) * shape.dim(1); ++vector) {
    for (int64_t i = 0; i < shape.dim(2); ++i) {
      numbers.push_back(scale_at(s, vector, i) * code_at(s, vector, i));
    }
  }
  return numbers;
}

TEST(StoreKV, CodesEachGroupWithinHalfAUnit) {
  std::mt19937 random(1);
  for (const int64_t D : {1, 3, 17, 32, 64, 65}) {
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      const Shape shape{5, 3, D};
      const Tensor x = as(type, normals(shape.numel(), random), shape);
      const std::vector<double> exact = to_doubles(x);
      for (const Kind& kind : {kKinds[3], kKinds[4]}) {
        const Stored s = stored(kind, x);
        const int most = kind.bits == 8 ? 127 : 7;
        for (int64_t n = 0; n < x.numel(); ++n) {
          const int64_t vector = n / D, i = n % D;
          const int64_t end = std::min(i / 32 * 32 + 32, D);
          double largest = 0;
          for (int64_t j = i / 32 * 32; j < end; ++j) {
            largest = std::max(largest, std::abs(exact[static_cast<size_t>(vector * D + j)]));
          }
          const double scale = scale_at(s, vector, i);
          // At least the exact scale, and less than one unit of bf16 above it.
          ASSERT_GE(scale * (1 + 1e-6), largest / most) << kind.name << " " << D;
          ASSERT_LE(scale, largest / most * (1 + 0x1p-7) * (1 + 1e-6)) << kind.name << " " << D;
          ASSERT_LE(std::abs(scale * code_at(s, vector, i) - exact[static_cast<size_t>(n)]),
                    scale * 0.5 * (1 + 1e-5));
          ASSERT_LE(std::abs(code_at(s, vector, i)), most);
        }
      }
    }
  }
}

TEST(StoreKV, RoundsToTheNearest) {
  const std::vector<float> numbers = {1.0F,        1.0F + 0x1p-8F, 1.0F + 0x1.8p-8F,
                                      -3.3333333F, 1e-9F,          7e4F};
  const Tensor x = Tensor::from(numbers, {1, 1, 6});
  const std::vector<bf16> in_bf16 = stored(kKinds[1], x).values.to_vector<bf16>();
  const std::vector<f16> in_f16 = stored(kKinds[2], x).values.to_vector<f16>();
  EXPECT_EQ(in_bf16[1].bits, 0x3f80);  // halfway: to even
  EXPECT_EQ(in_bf16[2].bits, 0x3f81);
  EXPECT_EQ(in_f16[0].bits, 0x3c00);
  EXPECT_EQ(in_f16[1].bits, 0x3c04);
  EXPECT_EQ(in_f16[4].bits, 0x0000);
  EXPECT_EQ(in_f16[5].bits, 0x7c00);  // beyond the largest half: infinity
}

TEST(StoreKV, ZerosStayZerosAndNaNStaysNaN) {
  std::vector<float> numbers(96, 0.0F);
  numbers[70] = std::nanf("");
  numbers[64] = 5;
  for (const Kind& kind : {kKinds[3], kKinds[4]}) {
    const std::vector<double> out =
        decoded(stored(kind, Tensor::from(numbers, {1, 1, 96})), {1, 1, 96});
    EXPECT_EQ(out[0], 0.0) << kind.name;
    EXPECT_EQ(out[63], 0.0) << kind.name;
    EXPECT_TRUE(std::isnan(out[70])) << kind.name;
  }
}

/// One number far from the others costs its own group only.
TEST(StoreKV, AnOutlierCostsItsOwnGroupOnly) {
  std::mt19937 random(2);
  std::vector<double> numbers = normals(64, random);
  numbers[3] = 1000;
  const std::vector<double> out =
      decoded(stored(kKinds[3], as(DType::f32, numbers, {1, 1, 64})), {1, 1, 64});
  for (size_t i = 32; i < 64; ++i) EXPECT_NEAR(out[i], numbers[i], 0.02);
  EXPECT_NEAR(out[3], 1000, 5);
}

/// Rows go where their slots say, in any order; those without one change nothing, though the next
/// row's slot be 0.
TEST(StoreKV, WritesItsSlotsOnly) {
  const std::vector<int32_t> slots = {3, 4, -1, 0, 6, 2};
  const int64_t n = std::ssize(slots), K = 2, D = 40;
  std::mt19937 random(4);
  const Tensor x = as(DType::f32, normals(n * K * D, random), {n, K, D});
  for (const Kind& kind : kKinds) {
    const Stored source = stored(kind, x);
    Stored to = {Tensor::zeros(Shape{7, K, source.values.dim(2)}, kind.type), {}};
    if (kind.bits != 0) to.code = {Tensor::zeros({7, K, 2}, DType::bf16), kind.bits};
    Tensor values = testing::there(to.values);
    const KVCode code{testing::there(to.code.scales), to.code.bits};
    testing::test_backend().store_kv(testing::there(x), testing::there(Tensor::from(slots, {n})),
                                     values, code);
    const std::vector<double> expected = decoded(source, x.shape());
    const std::vector<double> out =
        decoded({testing::here(values), {testing::here(code.scales), code.bits}}, {7, K, D});
    std::vector<double> wanted(out.size(), 0.0);
    for (size_t row = 0; row < slots.size(); ++row) {
      if (slots[row] >= 0) {
        std::copy_n(expected.begin() + static_cast<int64_t>(row) * K * D, K * D,
                    wanted.begin() + slots[row] * K * D);
      }
    }
    EXPECT_EQ(out, wanted) << kind.name;
  }
}

const std::vector<Problem> kStoredProblems = {
    {.name = "decode", .lengths = {200, 129}, .counts = {1, 1}, .heads = 8, .kv_heads = 2},
    {.name = "decode_odd",
     .lengths = {70},
     .counts = {1},
     .heads = 6,
     .kv_heads = 2,
     .key_size = 17,
     .value_size = 65},
    {.name = "decode_wide",
     .lengths = {140},
     .counts = {1},
     .heads = 20,
     .kv_heads = 10,
     .key_size = 128,
     .value_size = 64},
    {.name = "decode_window",
     .lengths = {300},
     .counts = {1},
     .heads = 4,
     .window = 70,
     .sinks = 3,
     .paged = true,
     .evicted = true,
     .q_sink = true},
    {.name = "prefill",
     .lengths = {66, 40},
     .counts = {66, 40},
     .heads = 1,
     .kv_heads = 1,
     .key_size = 64,
     .value_size = 32},
    {.name = "chunk_odd",
     .lengths = {300, 200},
     .counts = {5, 3},
     .kv_heads = 1,
     .key_size = 33,
     .value_size = 3},
    {.name = "chunk_paged",
     .lengths = {130, 66, 64},
     .counts = {9, 66, 1},
     .heads = 1,
     .kv_heads = 1,
     .paged = true,
     .sink_logits = true},
};

struct Types {
  const char* name;
  int k, v;  // of kKinds
};
const std::vector<Types> kTypes = {{"f32", 0, 0},      {"bf16", 1, 1},     {"f16", 2, 2},
                                   {"int8", 3, 3},     {"int4", 4, 4},     {"int8_int4", 3, 4},
                                   {"f32_int8", 0, 3}, {"bf16_f32", 1, 0}, {"int4_bf16", 4, 1}};

const std::vector<testing::Precision> kQueries = {
    {"f64", DType::f64, 1e-13}, {"f32", DType::f32, 2e-6}, {"bf16", DType::bf16, 1e-2}};

class StoredAttention
    : public ::testing::TestWithParam<std::tuple<Problem, Types, testing::Precision>> {};

TEST_P(StoredAttention, EqualsAttentionOverWhatWasWritten) {
  const auto& [problem, types, queries] = GetParam();
  if (testing::test_device_is_slow() && queries.type == DType::f64) {
    GTEST_SKIP() << "f32 takes the same path";
  }
  std::mt19937 random(3);
  AttentionInputs exact = testing::make_inputs(problem, queries.type, random);
  const Stored k = stored(kKinds[static_cast<size_t>(types.k)], exact.kv.k);
  const Stored v = stored(kKinds[static_cast<size_t>(types.v)], exact.kv.v);
  AttentionInputs in = as(queries.type, exact);
  in.kv.k = k.values;
  in.kv.k_code = k.code;
  in.kv.v = v.values;
  in.kv.v_code = v.code;
  in.kv.value_size = problem.value_size;
  exact.kv.k = Tensor::from(decoded(k, exact.kv.k.shape()), exact.kv.k.shape());
  exact.kv.v = Tensor::from(decoded(v, exact.kv.v.shape()), exact.kv.v.shape());
  const Shape shape = in.q.shape().with_last(problem.value_size);
  const testing::AttentionResult expected =
      testing::reference_attention(exact, normals(shape.numel(), random));
  const testing::Forward f = testing::forward(in);
  EXPECT_LE(testing::max_relative_error(f.out, Tensor::from(expected.out, f.out.shape())),
            queries.tolerance);
  EXPECT_LE(testing::max_relative_error(f.lse, Tensor::from(expected.lse, f.lse.shape())),
            std::min(queries.tolerance, 2e-6));
}

INSTANTIATE_TEST_SUITE_P(Types, StoredAttention,
                         ::testing::Combine(::testing::ValuesIn(kStoredProblems),
                                            ::testing::ValuesIn(kTypes),
                                            ::testing::ValuesIn(kQueries)),
                         [](const ::testing::TestParamInfo<StoredAttention::ParamType>& suite) {
                           return fmt::format("{}_{}_{}", std::get<0>(suite.param).name,
                                              std::get<1>(suite.param).name,
                                              std::get<2>(suite.param).name);
                         });

/// Values that are the first numbers of the keys: as if they had been stored beside them.
TEST(LatentAttention, ReadsItsValuesFromTheKeys) {
  for (const int32_t count : {1, 9}) {
    for (const Kind& kind : {kKinds[0], kKinds[1], kKinds[3], kKinds[4]}) {
      std::mt19937 random(4);
      const Problem p{.name = "latent",
                      .lengths = {150},
                      .counts = {count},
                      .heads = 6,
                      .kv_heads = 1,
                      .key_size = 56,
                      .value_size = 40};
      AttentionInputs exact = testing::make_inputs(p, DType::f32, random);
      const Stored k = stored(kind, exact.kv.k);
      AttentionInputs in = as(DType::f32, exact);
      in.kv.k = k.values;
      in.kv.k_code = k.code;
      in.kv.v = {};
      in.kv.value_size = 40;
      const std::vector<double> keys = decoded(k, exact.kv.k.shape());
      exact.kv.k = Tensor::from(keys, exact.kv.k.shape());
      for (int64_t i = 0; i < exact.kv.v.numel(); ++i) {
        exact.kv.v.data<double>()[i] = keys[static_cast<size_t>(i / 40 * 56 + i % 40)];
      }
      const Shape shape = in.q.shape().with_last(40);
      const testing::AttentionResult expected =
          testing::reference_attention(exact, normals(shape.numel(), random));
      const testing::Forward f = testing::forward(in);
      EXPECT_LE(testing::max_relative_error(f.out, Tensor::from(expected.out, shape)), 2e-6)
          << kind.name << ", " << count;
    }
  }
}

/// Element (i, j) of the matrix is -1 where i and j have an odd number of ones in common.
TEST(Hadamard, EqualsItsDefinition) {
  std::mt19937 random(5);
  for (const auto& [D, block] :
       {std::pair<int64_t, int64_t>{1, 1}, {3, 1}, {8, 8}, {48, 16}, {64, 64}}) {
    const Shape shape{2, 3, D};
    for (const testing::Precision& precision : testing::kActivationTypes) {
      const testing::Operand x(precision.type, shape, random);
      Tensor y = testing::there(Tensor::zeros(shape, precision.type));
      testing::test_backend().hadamard(testing::there(x.tensor), y);
      testing::expect_elements(
          y,
          [&, block = block](int64_t n) {
            const int64_t first = n / block * block, row = n % block;
            double sum = 0;
            for (int64_t j = 0; j < block; ++j) {
              const bool odd = std::popcount(static_cast<uint64_t>(row & j)) % 2 != 0;
              sum += odd ? -x[first + j] : x[first + j];
            }
            return sum / std::sqrt(static_cast<double>(block));
          },
          precision.tolerance, precision.name);
    }
  }
}

}  // namespace
}  // namespace headroom
