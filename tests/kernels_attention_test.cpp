// The attention kernels against the definition, over many shapes and block tables, and
// what must not change a result.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstring>
#include <string_view>

#include "kernels/cpu/attention_pairs.h"
#include "kernels/threads.h"
#include "tests/attention_problems.h"
#include "tests/reference.h"

namespace headroom {
namespace {

using testing::as;
using testing::AttentionInputs;
using testing::backward;
using testing::Forward;
using testing::forward;
using testing::Gradients;
using testing::make_inputs;
using testing::normals;
using testing::output_shape;
using testing::Precision;
using testing::Problem;

/// A multi-head shape, groups of every kind, odd sizes, ragged lengths and block tables. Just long
/// enough for what they are about: most have rows and keys for two tiles of 64, some for more.
const std::vector<Problem> kProblems = {
    {.name = "one_query_one_key", .lengths = {1}, .counts = {1}},
    {.name = "training", .lengths = {66, 66}, .counts = {66, 66}, .heads = 1, .kv_heads = 1},
    {.name = "groups_of_2", .lengths = {47}, .counts = {47}, .heads = 4, .kv_heads = 2},
    {.name = "multi_query", .lengths = {35}, .counts = {35}, .heads = 7, .kv_heads = 1},
    {.name = "size_1", .lengths = {9}, .counts = {9}, .key_size = 1, .value_size = 1},
    {.name = "size_3", .lengths = {67}, .counts = {67}, .key_size = 3, .value_size = 3},
    {.name = "size_17_and_5", .lengths = {33}, .counts = {33}, .key_size = 17, .value_size = 5},
    {.name = "size_32", .lengths = {64}, .counts = {64}, .key_size = 32, .value_size = 32},
    {.name = "size_65_and_64", .lengths = {66}, .counts = {66}, .key_size = 65, .value_size = 64},
    {.name = "size_48_and_128", .lengths = {40}, .counts = {40}, .key_size = 48, .value_size = 128},
    {.name = "size_256", .lengths = {40}, .counts = {40}, .key_size = 256, .value_size = 256},
    {.name = "ragged",
     .lengths = {66, 1, 0, 33},
     .counts = {66, 1, 0, 32},
     .heads = 1,
     .kv_heads = 1},
    {.name = "padded_rows", .lengths = {65, 90, 20}, .counts = {1, 40, 7}, .kv_heads = 1},
    {.name = "decode", .lengths = {200, 129}, .counts = {1, 1}, .heads = 8, .kv_heads = 2},
    {.name = "decode_one_head", .lengths = {77}, .counts = {1}, .heads = 1, .kv_heads = 1},
    {.name = "decode_many_heads", .lengths = {77}, .counts = {1}, .heads = 40, .kv_heads = 1},
    {.name = "decode_groups_of_3", .lengths = {77}, .counts = {1}, .heads = 6, .kv_heads = 2},
    {.name = "decode_groups_of_7", .lengths = {65}, .counts = {1}, .heads = 7, .kv_heads = 1},
    {.name = "decode_groups_of_12",
     .lengths = {200, 70},
     .counts = {1, 1},
     .heads = 24,
     .kv_heads = 2,
     .key_size = 64,
     .value_size = 64},
    {.name = "decode_groups_of_16",
     .lengths = {150},
     .counts = {1},
     .heads = 16,
     .kv_heads = 1,
     .key_size = 128,
     .value_size = 128},
    {.name = "decode_groups_of_3_wide",
     .lengths = {131},
     .counts = {1},
     .heads = 6,
     .kv_heads = 2,
     .key_size = 576,
     .value_size = 512,
     .window = 100,
     .sinks = 3,
     .q_sink = true},
    {.name = "decode_groups_of_16_wide",
     .lengths = {70, 131},
     .counts = {0, 1},
     .heads = 16,
     .kv_heads = 1,
     .key_size = 576,
     .value_size = 512,
     .window = 100,
     .sinks = 3,
     .q_sink = true},
    {.name = "decode_queries_of_groups_of_4",
     .lengths = {130, 70},
     .counts = {5, 2},
     .heads = 8,
     .kv_heads = 2,
     .spare = 20},
    {.name = "decode_ragged", .lengths = {90, 0, 64}, .counts = {1, 0, 1}, .heads = 4},
    {.name = "decode_wide",
     .lengths = {70, 33},
     .counts = {1, 1},
     .heads = 16,
     .kv_heads = 8,
     .key_size = 130,
     .value_size = 120},
    {.name = "decode_long", .lengths = {1500}, .counts = {1}, .heads = 4, .kv_heads = 1},
    {.name = "chunk", .lengths = {300, 200}, .counts = {5, 3}, .kv_heads = 1},
    {.name = "paged",
     .lengths = {130, 66, 64},
     .counts = {9, 66, 1},
     .heads = 1,
     .kv_heads = 1,
     .paged = true},
    {.name = "window", .lengths = {130}, .counts = {66}, .heads = 1, .kv_heads = 1, .window = 37},
    {.name = "window_of_1",
     .lengths = {70},
     .counts = {70},
     .heads = 1,
     .kv_heads = 1,
     .window = 1},
    {.name = "window_of_64",
     .lengths = {130},
     .counts = {66},
     .heads = 1,
     .kv_heads = 1,
     .window = 64},
    {.name = "window_and_sinks",
     .lengths = {200},
     .counts = {33},
     .kv_heads = 1,
     .window = 40,
     .sinks = 3},
    {.name = "sinks_past_a_block",
     .lengths = {90},
     .counts = {90},
     .heads = 1,
     .kv_heads = 1,
     .window = 9,
     .sinks = 70},
    {.name = "sinks_past_a_block_long_ago",
     .lengths = {270},
     .counts = {20},
     .heads = 1,
     .kv_heads = 1,
     .window = 9,
     .sinks = 70},
    {.name = "window_paged",
     .lengths = {300, 66},
     .counts = {9, 66},
     .heads = 1,
     .kv_heads = 1,
     .window = 50,
     .sinks = 4,
     .paged = true},
    {.name = "evicted",
     .lengths = {500, 300},
     .counts = {3, 1},
     .heads = 4,
     .kv_heads = 2,
     .window = 100,
     .sinks = 4,
     .paged = true,
     .evicted = true},
    {.name = "evicted_without_sinks",
     .lengths = {1000},
     .counts = {1},
     .window = 100,
     .paged = true,
     .evicted = true},
    {.name = "evicted_long",
     .lengths = {2000},
     .counts = {1},
     .window = 900,
     .sinks = 5,
     .paged = true,
     .evicted = true},
    {.name = "sink_logits",
     .lengths = {66, 9},
     .counts = {66, 9},
     .kv_heads = 1,
     .sink_logits = true},
    {.name = "sink_logits_long", .lengths = {900}, .counts = {2}, .heads = 4, .sink_logits = true},
    {.name = "q_sink",
     .lengths = {130},
     .counts = {33},
     .kv_heads = 1,
     .window = 30,
     .sinks = 5,
     .q_sink = true},
    {.name = "q_sink_from_the_start",
     .lengths = {90},
     .counts = {90},
     .heads = 1,
     .kv_heads = 1,
     .window = 30,
     .sinks = 5,
     .q_sink = true},
    {.name = "q_sink_decode",
     .lengths = {90},
     .counts = {1},
     .heads = 4,
     .window = 80,
     .sinks = 3,
     .q_sink = true},
    {.name = "decode_spare",
     .lengths = {90, 0, 130},
     .counts = {1, 0, 1},
     .heads = 4,
     .paged = true,
     .spare = 40},
    {.name = "chunk_spare", .lengths = {70, 9}, .counts = {3, 2}, .heads = 4, .spare = 20},
    {.name = "evicted_spare",
     .lengths = {500, 1},
     .counts = {1, 1},
     .heads = 4,
     .kv_heads = 2,
     .window = 100,
     .sinks = 4,
     .paged = true,
     .evicted = true,
     .spare = 7},
    {.name = "q_sink_evicted",
     .lengths = {700},
     .counts = {1},
     .heads = 4,
     .window = 300,
     .sinks = 67,
     .paged = true,
     .evicted = true,
     .q_sink = true},
};

constexpr std::string_view kPairs = "bf16_pairs";
const std::vector<Precision> kPrecisions = {{"f64", DType::f64, 1e-13},
                                            {"f32", DType::f32, 2e-6},
                                            {"bf16", DType::bf16, 1e-2},
                                            {kPairs.data(), DType::bf16, 1e-2}};

class Attention : public ::testing::TestWithParam<std::tuple<Problem, Precision>> {
 protected:
  /// Both of the CPU's ways to multiply bf16, whichever this processor is given.
  void SetUp() override {
    const bool pairs = precision().name == kPairs;
    if (pairs && (testing::test_device() != kCpu || !kernels::has_native_bf16())) {
      GTEST_SKIP() << "no processor for pairs of bf16";
    }
    kernels::cpu::attends_in_pairs() = pairs;
  }
  void TearDown() override { kernels::cpu::attends_in_pairs() = usual_; }

  const Problem& problem() const { return std::get<0>(GetParam()); }
  const Precision& precision() const { return std::get<1>(GetParam()); }

  static void expect_near(const Tensor& actual, const std::vector<double>& expected, double bound,
                          const char* what) {
    EXPECT_LE(testing::max_relative_error(actual, Tensor::from(expected, actual.shape())), bound)
        << what;
  }

 private:
  bool usual_ = kernels::cpu::attends_in_pairs();
};

TEST_P(Attention, EqualsItsDefinition) {
  std::mt19937 random(1);
  const AttentionInputs in = make_inputs(problem(), precision().type, random);
  const testing::AttentionResult expected =
      testing::reference_attention(in, normals(output_shape(in).numel(), random));
  const Forward f = forward(as(precision().type, in));
  expect_near(f.out, expected.out, precision().tolerance, "out");
  // Activations in bf16 leave lse in f32.
  expect_near(f.lse, expected.lse, std::min(precision().tolerance, 2e-6), "lse");
}

TEST_P(Attention, HasTheGradientsOfItsDefinition) {
  if (problem().q_sink) GTEST_SKIP() << "inference only";
  std::mt19937 random(2);
  const DType type = precision().type;
  const AttentionInputs in = make_inputs(problem(), type, random);
  const Shape shape = output_shape(in);
  const Tensor dout = as(type, normals(shape.numel(), random), shape);
  const testing::AttentionResult expected = testing::reference_attention(in, to_doubles(dout));
  // dq of a lone key is 0 up to the rounding of differences of numbers near 1.
  const bool lone = problem().lengths[0] == 1 || problem().window == 1;
  const double bound = 5 * precision().tolerance;
  for (const bool add : {false, true}) {
    const double fill = add ? 1.0 : std::nan("");
    const auto shifted = [&](std::vector<double> values) {
      for (double& value : values) value += add ? 1.0 : 0.0;
      return values;
    };
    const Gradients g = backward(as(type, in), dout, fill, add);
    if (!lone || add) {
      expect_near(g.dq, shifted(expected.dq), bound, add ? "dq added" : "dq");
      expect_near(g.dk, shifted(expected.dk), bound, add ? "dk added" : "dk");
    }
    expect_near(g.dv, shifted(expected.dv), bound, add ? "dv added" : "dv");
    if (problem().sink_logits) {
      expect_near(g.dsink, shifted(expected.dsink), bound, add ? "dsink added" : "dsink");
    }
  }
}

TEST_P(Attention, DoesNotDependOnTheNumberOfThreads) {
  if (testing::test_device() != kCpu || testing::test_device_is_slow()) {
    GTEST_SKIP() << "a GPU has no such number";
  }
  std::mt19937 random(3);
  const DType type = precision().type;
  const AttentionInputs in = as(type, make_inputs(problem(), type, random));
  const Shape shape = output_shape(in);
  const Tensor dout = as(type, normals(shape.numel(), random), shape);
  const int before = omp_get_max_threads();
  std::vector<std::vector<Tensor>> results;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    const Forward f = forward(in);
    const Gradients g = problem().q_sink ? Gradients{} : backward(in, dout, 0.0, false);
    results.push_back({f.out, f.lse, g.dq, g.dk, g.dv, g.dsink});
  }
  omp_set_num_threads(before);
  for (size_t run = 1; run < results.size(); ++run) {
    for (size_t i = 0; i < results[run].size(); ++i) {
      const Tensor &a = results[0][i], &b = results[run][i];
      EXPECT_EQ(a.nbytes(), b.nbytes());
      EXPECT_TRUE(!a.defined() || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0) << "result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         ::testing::Combine(::testing::ValuesIn(kProblems),
                                            ::testing::ValuesIn(kPrecisions)),
                         [](const ::testing::TestParamInfo<Attention::ParamType>& suite) {
                           return std::string(std::get<0>(suite.param).name) + "_" +
                                  std::get<1>(suite.param).name;
                         });

/// A row's result doesn't depend on how many rows were asked for at once, as long as no split over
/// the keys is involved: every path sums a row's numbers in the same order.
TEST(AttentionRows, TwoQueriesAtATimeGiveTheSameBits) {
  std::mt19937 random(4);
  const Problem all{.name = "all",
                    .lengths = {150},
                    .counts = {150},
                    .heads = 6,
                    .kv_heads = 2,
                    .key_size = 24,
                    .value_size = 24};
  const AttentionInputs in = as(DType::f32, make_inputs(all, DType::f32, random));
  const Forward together = forward(in);
  for (const int32_t length : {2, 7, 64, 65, 128, 150}) {
    AttentionInputs two = in;
    two.q = in.q.reshape({150, 6, 24}).rows(length - 2, length).reshape({1, 2, 6, 24});
    two.kv.lengths = Tensor::from(std::vector<int32_t>{length}, {1});
    two.kv.counts = Tensor::from(std::vector<int32_t>{2}, {1});
    const Forward alone = forward(two);
    const float* row = together.out.data<float>() + (length - 2) * 6 * 24;
    EXPECT_EQ(std::memcmp(row, alone.out.raw(), alone.out.nbytes()), 0) << "position " << length;
  }
}

/// Large scores of either sign: the maximum is subtracted before anything is exponentiated.
TEST(AttentionScores, LargeOnesDoNotOverflow) {
  for (const double size : {-1000.0, 1000.0}) {
    std::mt19937 random(5);
    const Problem p{.name = "large", .lengths = {80}, .counts = {80}};
    AttentionInputs in = make_inputs(p, DType::f32, random);
    std::fill_n(in.q.data<double>(), in.q.numel(), size / 4);
    std::fill_n(in.kv.k.data<double>(), in.kv.k.numel(), 1.0);
    const Forward f = forward(as(DType::f32, in));  // all scores are `size`: the mean of the values
    double mean = 0;
    for (int64_t j = 0; j < 80; ++j) mean += in.kv.v.data<double>()[j * 32] / 80;
    EXPECT_NEAR(f.out.data<float>()[79 * 32], mean, 1e-5);
    EXPECT_NEAR(f.lse.data<float>()[79 * 2], size + std::log(80.0), 1e-3);
  }
}

}  // namespace
}  // namespace headroom
