// Student's t is Boost.Math's; this is the only file that includes it.
#include "experiments/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/check.h"

namespace headroom::experiments {

double mean(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::optional<double> sd(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const double center = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - center) * (value - center);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

double ci95_half_width(double deviation, int64_t n) {
  check(n >= 2, "[statistics] a confidence interval needs at least 2 values: got {}", n);
  const boost::math::students_t t(static_cast<double>(n - 1));
  return boost::math::quantile(t, 0.975) * deviation / std::sqrt(static_cast<double>(n));
}

PairedDifference paired_difference(std::span<const double> a, std::span<const double> b) {
  check(a.size() == b.size(), "[statistics] paired samples have equal lengths: got {} and {}",
        a.size(), b.size());
  std::vector<double> differences(a.size());
  std::transform(a.begin(), a.end(), b.begin(), differences.begin(), std::minus<>());
  PairedDifference result;
  result.n = static_cast<int64_t>(a.size());
  result.mean = mean(differences);
  result.sd = sd(differences);
  if (!result.sd || !std::isfinite(result.mean)) return result;
  result.ci95 = ci95_half_width(*result.sd, result.n);
  if (*result.sd == 0) {
    result.p = result.mean == 0 ? 1.0 : 0.0;
    return result;
  }
  const double t = std::abs(result.mean) * std::sqrt(static_cast<double>(result.n)) / *result.sd;
  const boost::math::students_t distribution(static_cast<double>(result.n - 1));
  result.p = 2 * boost::math::cdf(boost::math::complement(distribution, t));
  return result;
}

int64_t seeds_to_resolve(double difference, double deviation) {
  check(difference > 0 && std::isfinite(deviation),
        "[statistics] a positive difference and a finite deviation are needed: got {} and {}",
        difference, deviation);
  // t quantiles exceed the normal one, so the answer is never below the normal approximation.
  constexpr double kNormalQuantile = 1.95996;
  const double ratio = kNormalQuantile * deviation / difference;
  int64_t n = std::max<int64_t>(2, static_cast<int64_t>(std::floor(ratio * ratio)));
  while (ci95_half_width(deviation, n) > difference) ++n;
  return n;
}

}  // namespace headroom::experiments
