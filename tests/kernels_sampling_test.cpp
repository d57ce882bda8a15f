// What sampling asks of logits, against its definition in float64.
#include <numeric>

#include "tests/kernel_operands.h"

namespace headroom::testing {
namespace {

using kernels::Largest;

class Sampling : public ::testing::TestWithParam<Precision> {};

/// Around the vectors' lengths, and around the stretches that threads take.
const std::vector<int64_t> kVocabularies = {1, 3, 17, 65, 4095, 4097, 50257};

Largest largest_of(const Tensor& x) { return test_backend().largest(there(x)); }

TEST_P(Sampling, FindsTheLargestAndTheLogarithmOfTheSum) {
  std::mt19937 random(1);
  for (const int64_t n : kVocabularies) {
    for (const double offset : {0.0, -300.0, 1000.0}) {
      std::vector<double> values = normals(n, random);
      for (double& value : values) value += offset;
      const DeviceOperand x(GetParam().type, values, {n});
      const auto best = std::max_element(x.exact.begin(), x.exact.end());
      double sum = 0;
      for (const double value : x.exact) sum += std::exp(value - *best);
      const Largest largest = largest_of(x.tensor);
      EXPECT_EQ(largest.index, best - x.exact.begin()) << n;
      EXPECT_EQ(largest.value, *best);
      EXPECT_NEAR(largest.log_sum, *best + std::log(sum), 10 * GetParam().tolerance) << n;
    }
  }
}

TEST_P(Sampling, TakesTheLowestIndexOfEqualOnes) {
  for (const int64_t n : kVocabularies) {
    for (const int64_t first : {int64_t{0}, n / 2, n - 1}) {
      std::vector<double> values(static_cast<size_t>(n), -1.0);
      for (int64_t i = first; i < n; i += 7) values[static_cast<size_t>(i)] = 2;
      EXPECT_EQ(largest_of(as(GetParam().type, values, {n})).index, first) << n;
    }
  }
}

TEST_P(Sampling, PassesOverMinusInfinityAndRefusesWhatIsNoNumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const int64_t n : kVocabularies) {
    std::vector<double> values(static_cast<size_t>(n), -kInfinity);
    EXPECT_EQ(largest_of(as(GetParam().type, values, {n})).index, -1) << n;
    values.back() = 3;
    const Largest largest = largest_of(as(GetParam().type, values, {n}));
    EXPECT_EQ(largest.index, n - 1);
    EXPECT_NEAR(largest.log_sum, 3, GetParam().tolerance);
    for (const double bad : {kInfinity, std::nan("")}) {
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        std::vector<double> worse = values;
        worse[static_cast<size_t>(at)] = bad;
        EXPECT_EQ(largest_of(as(GetParam().type, worse, {n})).index, -1) << n << ", " << at;
      }
    }
  }
}

TEST_P(Sampling, WeightsAreExponentials) {
  std::mt19937 random(2);
  for (const int64_t n : kVocabularies) {
    std::vector<double> values = normals(n, random);
    values[0] = -std::numeric_limits<double>::infinity();
    const DeviceOperand x(GetParam().type, values, {n});
    const double shift = 4;
    for (const double divisor : {0.5, 1.0, 1e9}) {
      Tensor y = there(as(GetParam().type, std::vector<double>(static_cast<size_t>(n), -1.0), {n}));
      test_backend().exp_weights(x.tensor, shift, divisor, y);
      expect_elements(
          y, [&](int64_t i) { return std::exp((x[i] - shift) / divisor); }, GetParam().tolerance,
          "weights");
    }
  }
}

/// Only what equals the shift is left, however small the divisor.
TEST_P(Sampling, WeightsOfATinyDivisorAreZeroOrOne) {
  const Tensor x = there(as(GetParam().type, {1, 0.999, -1e30, 1}, {4}));
  for (const double divisor : {1e-30, 1e-45, 5e-324}) {
    Tensor y = there(as(GetParam().type, {9, 9, 9, 9}, {4}));
    test_backend().exp_weights(x, 1, divisor, y);
    EXPECT_EQ(to_doubles(y), (std::vector<double>{1, 0, 0, 1}));
  }
}

/// What narrowing leaves of weights: by sorting, and one filter after another.
std::vector<double> narrowed(const std::vector<double>& x, std::vector<double> w,
                             const kernels::Narrowing& by) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  size_t kept = x.size();
  if (by.top_k > 0) kept = std::min(kept, static_cast<size_t>(by.top_k));
  double all = 0, sum = 0;
  for (size_t i = 0; i < kept; ++i) all += w[order[i]];
  for (size_t i = 0; i < kept; ++i) {
    sum += w[order[i]];
    if (by.top_p < 1 && sum >= by.top_p * all) kept = i + 1;
  }
  for (size_t i = kept; i < x.size(); ++i) w[order[i]] = 0;
  for (double& weight : w) weight = weight < by.min_p ? 0 : weight;
  return w;
}

/// Logits with many equal ones, zeros of both signs among them, and some that are minus infinity.
std::vector<double> coarse_logits(int64_t n, std::mt19937& random) {
  std::vector<double> x = normals(n, random);
  for (double& logit : x) logit = std::round(4 * logit) / 4;
  for (size_t i = 5; i < x.size(); i += 9) x[i] = -std::numeric_limits<double>::infinity();
  return x;
}

TEST_P(Sampling, NarrowingKeepsTheLikeliest) {
  std::mt19937 random(4);
  for (const int64_t n : kVocabularies) {
    if (test_device_is_slow() && n > 5000) continue;
    const DeviceOperand x(GetParam().type, coarse_logits(n, random), {n});
    const double most = *std::max_element(x.exact.begin(), x.exact.end());
    for (const kernels::Narrowing& by : {kernels::Narrowing{},
                                         {.top_k = 1},
                                         {.top_k = 3},
                                         {.top_k = n / 2},
                                         {.top_k = n + 1},
                                         {.top_p = 0},
                                         {.top_p = 0.3},
                                         {.top_p = 0.9},
                                         {.min_p = 0.2},
                                         {.min_p = 1},
                                         {.top_k = 16, .top_p = 0.7, .min_p = 0.3}}) {
      Tensor w = there(as(GetParam().type, x.exact, {n}));
      test_backend().exp_weights(x.tensor, most, 0.8, w);
      const std::vector<double> expected = narrowed(x.exact, to_doubles(w), by);
      test_backend().keep_likeliest(x.tensor, by, w);
      EXPECT_EQ(to_doubles(w), expected)
          << n << ": top_k " << by.top_k << ", top_p " << by.top_p << ", min_p " << by.min_p;
    }
  }
}

TEST_P(Sampling, DrawsWhereTheSharePasses) {
  const std::vector<double> eighths = {0, 0.25, 0, 0.5, 0.125, 0, 0.125, 0};
  const Tensor w = there(as(GetParam().type, eighths, {8}));
  for (const auto& [share, token] : std::vector<std::pair<double, int32_t>>{{0, 1},
                                                                            {0.249, 1},
                                                                            {0.25, 3},
                                                                            {0.7499, 3},
                                                                            {0.75, 4},
                                                                            {0.875, 6},
                                                                            {0.9999, 6},
                                                                            {1, -1}}) {
    EXPECT_EQ(test_backend().draw(w, share), token) << share;
  }
  for (const int64_t n : kVocabularies) {
    const std::vector<double> weights(static_cast<size_t>(n), 1.0);  // sums that are exact
    for (const double share : {0.0, 0.3, 0.999}) {
      EXPECT_EQ(test_backend().draw(there(as(GetParam().type, weights, {n})), share),
                static_cast<int32_t>(share * static_cast<double>(n)))
          << n << ", " << share;
    }
  }
}

TEST_P(Sampling, DoesNotDependOnTheNumberOfThreads) {
  std::mt19937 random(3);
  const DeviceOperand x(GetParam().type, {50257}, random);
  expect_same_for_any_threads([&] {
    const Largest largest = largest_of(x.tensor);
    Tensor y = there(as(GetParam().type, x.exact, {50257}));
    test_backend().exp_weights(x.tensor, 5, 0.8, y);
    return std::vector<Tensor>{there(Tensor::from(std::vector<double>{largest.log_sum}, {1})), y};
  });
}

INSTANTIATE_TEST_SUITE_P(Types, Sampling,
                         ::testing::Values(kActivationTypes[0], kActivationTypes[1]),
                         name_of_precision);

}  // namespace
}  // namespace headroom::testing
