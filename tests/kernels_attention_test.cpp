// The attention kernels of the CPU against PyTorch's values, against the definition over many
// shapes and block tables, and against finite differences.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ostream>
#include <random>
#include <string>

#include "kernels/cpu/attention.h"
#include "tests/golden.h"
#include "tests/reference.h"

namespace headroom {
namespace {

using kernels::AttentionInputs;
using kernels::Into;

/// What a random problem looks like. The last `queries` positions of each sequence ask.
struct Problem {
  const char* name;
  std::vector<int32_t> lengths, counts;
  int64_t heads = 2, kv_heads = 2, key_size = 16, value_size = 16;
  int64_t window = 0, sinks = 0;
  bool paged = false;    // blocks in shuffled places
  bool evicted = false;  // blocks that hold nothing visible are gone from the table
  bool q_sink = false, sink_logits = false;
};

std::ostream& operator<<(std::ostream& out, const Problem& p) { return out << p.name; }

std::vector<double> normals(int64_t count, std::mt19937& random) {
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = normal(random);
  return values;
}

Tensor as(DType type, const std::vector<double>& values, const Shape& shape) {
  if (type == DType::f64) return Tensor::from(values, shape);
  const std::vector<float> floats(values.begin(), values.end());
  if (type == DType::f32) return Tensor::from(floats, shape);
  std::vector<bf16> rounded;
  for (const float value : floats) rounded.emplace_back(value);
  return Tensor::from(rounded, shape);
}

Tensor as(DType type, const Tensor& x) {
  return x.defined() ? as(type, testing::to_doubles(x), x.shape()) : x;
}

/// The same problem with activations of another type.
AttentionInputs as(DType type, const AttentionInputs& in) {
  AttentionInputs to = in;
  to.q = as(type, in.q);
  to.q_sink = as(type, in.q_sink);
  to.kv.k = as(type, in.kv.k);
  to.kv.v = as(type, in.kv.v);
  to.sink_logits = as(compute_type(type), in.sink_logits);
  return to;
}

/// The block table of a problem, and how many slots it needs.
int64_t make_table(const Problem& p, std::mt19937& random, kernels::KVView& kv) {
  const auto batch = static_cast<int64_t>(p.lengths.size());
  const int32_t longest = *std::max_element(p.lengths.begin(), p.lengths.end());
  const int64_t blocks = std::max<int64_t>(1, (longest + 63) / 64);
  std::vector<int32_t> places(static_cast<size_t>(batch * blocks));
  std::iota(places.begin(), places.end(), 0);
  if (p.paged) std::shuffle(places.begin(), places.end(), random);
  std::vector<int32_t> slots(places.size(), 0), starts(places.size(), -1);
  for (int64_t b = 0; b < batch; ++b) {
    const auto at = static_cast<size_t>(b);
    int64_t used = 0;
    for (int32_t start = 0; start < p.lengths[at]; start += 64) {
      const int64_t oldest = p.lengths[at] - p.counts[at] - p.window + 1;
      if (p.evicted && start >= p.sinks && start + 63 < oldest) continue;
      const auto entry = static_cast<size_t>(b * blocks + used++);
      starts[entry] = start;
      slots[entry] = p.paged ? 64 * places[entry] : static_cast<int32_t>(b) * longest + start;
    }
  }
  kv.slots = Tensor::from(slots, {batch, blocks});
  kv.starts = Tensor::from(starts, {batch, blocks});
  kv.lengths = Tensor::from(p.lengths, {batch});
  kv.counts = Tensor::from(p.counts, {batch});
  return p.paged ? 64 * batch * blocks : batch * longest;
}

/// A random problem in f64 whose numbers are exact in `rounded`.
AttentionInputs make_inputs(const Problem& p, DType rounded, std::mt19937& random) {
  const auto batch = static_cast<int64_t>(p.lengths.size());
  const int64_t queries = std::max(1, *std::max_element(p.counts.begin(), p.counts.end()));
  const auto draw = [&](const Shape& shape) {
    return as(DType::f64, as(rounded, normals(shape.numel(), random), shape));
  };
  AttentionInputs in;
  const int64_t slots = make_table(p, random, in.kv);
  in.q = draw({batch, queries, p.heads, p.key_size});
  if (p.q_sink) in.q_sink = draw({batch, queries, p.heads, p.key_size});
  in.kv.k = draw({slots, p.kv_heads, p.key_size});
  in.kv.v = draw({slots, p.kv_heads, p.value_size});
  if (p.sink_logits) in.sink_logits = draw({p.heads});
  in.mask = {p.window, p.sinks};
  in.scale = 1.0 / std::sqrt(static_cast<double>(p.key_size));
  return in;
}

Shape output_shape(const AttentionInputs& in) { return in.q.shape().with_last(in.kv.v.dim(2)); }

struct Forward {
  Tensor out, lse;
};

/// Runs the kernel into memory full of NaN: what it leaves unwritten shows.
Forward forward(const AttentionInputs& in) {
  const DType type = in.q.dtype();
  const Shape shape = output_shape(in);
  const Shape rows{shape.dim(0), shape.dim(1), shape.dim(2)};
  const auto nan = [](const Shape& s) {
    return std::vector<double>(static_cast<size_t>(s.numel()), std::nan(""));
  };
  Forward f{as(type, nan(shape), shape), as(compute_type(type), nan(rows), rows)};
  kernels::cpu::attention(in, f.out, f.lse);
  return f;
}

struct Gradients {
  Tensor dq, dk, dv, dsink;
};

/// The gradients written over `fill`, or added to it.
Gradients backward(const AttentionInputs& in, const Tensor& dout, double fill, bool add) {
  const Forward f = forward(in);
  const auto like = [&](const Tensor& x) {
    const std::vector<double> values(static_cast<size_t>(x.numel()), fill);
    return x.defined() ? as(x.dtype(), values, x.shape()) : x;
  };
  Gradients g{like(in.q), like(in.kv.k), like(in.kv.v), like(in.sink_logits)};
  kernels::cpu::attention_backward(in, f.out, f.lse, dout, {g.dq, add}, {g.dk, add}, {g.dv, add},
                                   {g.dsink, add});
  return g;
}

/// A multi-head shape, groups of every kind, odd sizes, ragged lengths and block tables.
const std::vector<Problem> kProblems = {
    {.name = "one_query_one_key", .lengths = {1}, .counts = {1}},
    {.name = "training", .lengths = {130, 130}, .counts = {130, 130}, .heads = 4, .kv_heads = 4},
    {.name = "groups_of_2", .lengths = {70, 70}, .counts = {70, 70}, .heads = 4, .kv_heads = 2},
    {.name = "multi_query", .lengths = {70}, .counts = {70}, .heads = 7, .kv_heads = 1},
    {.name = "size_1", .lengths = {9}, .counts = {9}, .key_size = 1, .value_size = 1},
    {.name = "size_3", .lengths = {67}, .counts = {67}, .key_size = 3, .value_size = 3},
    {.name = "size_17_and_5", .lengths = {33}, .counts = {33}, .key_size = 17, .value_size = 5},
    {.name = "size_32", .lengths = {64}, .counts = {64}, .key_size = 32, .value_size = 32},
    {.name = "size_65_and_64", .lengths = {66}, .counts = {66}, .key_size = 65, .value_size = 64},
    {.name = "size_48_and_128", .lengths = {40}, .counts = {40}, .key_size = 48, .value_size = 128},
    {.name = "size_256", .lengths = {40}, .counts = {40}, .key_size = 256, .value_size = 256},
    {.name = "ragged", .lengths = {100, 1, 0, 64}, .counts = {100, 1, 0, 63}, .heads = 4},
    {.name = "padded_rows", .lengths = {65, 90, 20}, .counts = {1, 40, 7}, .heads = 6},
    {.name = "decode", .lengths = {200, 129}, .counts = {1, 1}, .heads = 8, .kv_heads = 2},
    {.name = "decode_one_head", .lengths = {77}, .counts = {1}, .heads = 1, .kv_heads = 1},
    {.name = "decode_many_heads", .lengths = {77}, .counts = {1}, .heads = 40, .kv_heads = 1},
    {.name = "decode_long", .lengths = {1500}, .counts = {1}, .heads = 4, .kv_heads = 1},
    {.name = "chunk", .lengths = {600, 515}, .counts = {5, 3}, .heads = 4, .kv_heads = 2},
    {.name = "paged", .lengths = {200, 90, 64}, .counts = {30, 90, 1}, .heads = 4, .paged = true},
    {.name = "window", .lengths = {150}, .counts = {150}, .window = 37},
    {.name = "window_of_1", .lengths = {70}, .counts = {70}, .window = 1},
    {.name = "window_of_64", .lengths = {200}, .counts = {200}, .window = 64},
    {.name = "window_and_sinks", .lengths = {210}, .counts = {210}, .window = 40, .sinks = 3},
    {.name = "sinks_past_a_block", .lengths = {260}, .counts = {260}, .window = 9, .sinks = 70},
    {.name = "window_paged",
     .lengths = {300, 80},
     .counts = {9, 80},
     .heads = 4,
     .kv_heads = 2,
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
    {.name = "sink_logits", .lengths = {70, 9}, .counts = {70, 9}, .heads = 4, .sink_logits = true},
    {.name = "sink_logits_long", .lengths = {900}, .counts = {2}, .heads = 4, .sink_logits = true},
    {.name = "q_sink",
     .lengths = {150},
     .counts = {100},
     .heads = 4,
     .window = 30,
     .sinks = 5,
     .q_sink = true},
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

struct Precision {
  const char* name;
  DType type;
  double tolerance;
};
std::ostream& operator<<(std::ostream& out, const Precision& p) { return out << p.name; }
const std::vector<Precision> kPrecisions = {
    {"f64", DType::f64, 1e-13}, {"f32", DType::f32, 2e-6}, {"bf16", DType::bf16, 1e-2}};

class Attention : public ::testing::TestWithParam<std::tuple<Problem, Precision>> {
 protected:
  const Problem& problem() const { return std::get<0>(GetParam()); }
  const Precision& precision() const { return std::get<1>(GetParam()); }

  static void expect_near(const Tensor& actual, const std::vector<double>& expected, double bound,
                          const char* what) {
    EXPECT_LE(testing::max_relative_error(actual, Tensor::from(expected, actual.shape())), bound)
        << what;
  }
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
  const testing::AttentionResult expected =
      testing::reference_attention(in, testing::to_doubles(dout));
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
TEST(AttentionRows, OneQueryAtATimeGivesTheSameBits) {
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
  for (const int32_t length : {1, 7, 64, 65, 128, 150}) {
    AttentionInputs one = in;
    one.q = in.q.reshape({150, 1, 6, 24}).rows(length - 1, length);
    one.kv.lengths = Tensor::from(std::vector<int32_t>{length}, {1});
    one.kv.counts = Tensor::from(std::vector<int32_t>{1}, {1});
    const Forward alone = forward(one);
    const float* row = together.out.data<float>() + (length - 1) * 6 * 24;
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

double weighted_sum(const AttentionInputs& in, const std::vector<double>& dout) {
  const std::vector<double> out = testing::to_doubles(forward(in).out);
  return std::inner_product(out.begin(), out.end(), dout.begin(), 0.0);
}

TEST(AttentionGradient, EqualsFiniteDifferences) {
  std::mt19937 random(6);
  const Problem p{.name = "differences",
                  .lengths = {9, 5},
                  .counts = {7, 5},
                  .heads = 4,
                  .kv_heads = 2,
                  .key_size = 3,
                  .value_size = 5,
                  .window = 4,
                  .sinks = 1,
                  .sink_logits = true};
  AttentionInputs in = make_inputs(p, DType::f64, random);
  const Shape shape = output_shape(in);
  const std::vector<double> dout = normals(shape.numel(), random);
  const Gradients g = backward(in, Tensor::from(dout, shape), std::nan(""), false);
  const auto compare = [&](Tensor& x, const Tensor& dx, const char* what) {
    double* values = x.data<double>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      constexpr double kStep = 1e-5;
      const double kept = values[i];
      values[i] = kept + kStep;
      const double up = weighted_sum(in, dout);
      values[i] = kept - kStep;
      const double down = weighted_sum(in, dout);
      values[i] = kept;
      EXPECT_NEAR(dx.data<double>()[i], (up - down) / (2 * kStep), 1e-8) << what << " " << i;
    }
  };
  compare(in.q, g.dq, "dq");
  compare(in.kv.k, g.dk, "dk");
  compare(in.kv.v, g.dv, "dv");
  compare(in.sink_logits, g.dsink, "dsink");
}

/// (B, H, T, D) of the golden files to (B, T, H, D) and back.
Tensor swap_middle(const Tensor& x) {
  const int64_t outer = x.dim(1), inner = x.dim(2), size = x.dim(3);
  const std::vector<double> from = testing::to_doubles(x);
  std::vector<double> to(from.size());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t d = i % size, m = i / size % inner, o = i / size / inner % outer;
    const int64_t b = i / size / inner / outer;
    to[static_cast<size_t>(((b * inner + m) * outer + o) * size + d)] =
        from[static_cast<size_t>(i)];
  }
  return as(x.dtype(), to, {x.dim(0), inner, outer, size});
}

class AttentionGolden : public ::testing::TestWithParam<Precision> {};

TEST_P(AttentionGolden, EqualsPyTorch) {
  const testing::Golden golden("ops.safetensors");
  const DType type = GetParam().type;
  const std::vector<std::string> cases = golden.cases("attention_");
  EXPECT_EQ(cases.size(), 37U);
  for (const std::string& name : cases) {
    SCOPED_TRACE(name);
    const auto tensor = [&](const char* key) {
      return swap_middle(golden.tensor(name, key, type));
    };
    const bool learned = golden.has(name, "in.sink_logits");
    AttentionInputs in;
    in.q = tensor("in.q");
    const Tensor k = tensor("in.k"), v = tensor("in.v");
    const int64_t batch = k.dim(0), keys = k.dim(1);
    in.kv.k = k.reshape({batch * keys, k.dim(2), k.dim(3)});
    in.kv.v = v.reshape({batch * keys, v.dim(2), v.dim(3)});
    in.kv.slots = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(keys)}, {2, 1});
    in.kv.starts = Tensor::from(std::vector<int32_t>{0, 0}, {2, 1});
    in.kv.lengths = Tensor::from(std::vector<int32_t>(2, static_cast<int32_t>(keys)), {2});
    in.kv.counts = Tensor::from(std::vector<int32_t>(2, static_cast<int32_t>(in.q.dim(1))), {2});
    if (learned) {
      in.sink_logits = golden.tensor(name, "in.sink_logits", type);
      in.scale = 1.0 / std::sqrt(static_cast<double>(in.q.dim(3)));
    } else {
      in.mask = {static_cast<int64_t>(golden.number(name, "window")),
                 static_cast<int64_t>(golden.number(name, "sinks"))};
      in.scale = golden.number(name, "scale");
    }
    const double bound = GetParam().tolerance;
    EXPECT_LE(testing::max_relative_error(forward(in).out, tensor("out.y")), bound);
    const Gradients g = backward(in, tensor("dout.y"), std::nan(""), false);
    EXPECT_LE(testing::max_relative_error(g.dq, tensor("grad.q")), bound);
    EXPECT_LE(testing::max_relative_error(g.dk, tensor("grad.k").reshape(in.kv.k.shape())), bound);
    EXPECT_LE(testing::max_relative_error(g.dv, tensor("grad.v").reshape(in.kv.v.shape())), bound);
    if (learned) {
      EXPECT_LE(testing::max_relative_error(g.dsink, golden.tensor(name, "grad.sink_logits", type)),
                bound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, AttentionGolden,
                         ::testing::Values(Precision{"f64", DType::f64, 1e-6},
                                           Precision{"f32", DType::f32, 1e-5}),
                         [](const ::testing::TestParamInfo<Precision>& suite) {
                           return std::string(suite.param.name);
                         });

}  // namespace
}  // namespace headroom
