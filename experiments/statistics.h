// The statistics of a sweep: means over seeds and differences paired by seed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace headroom::experiments {

/// NaN when empty.
double mean(std::span<const double> values);

/// Standard deviation of a sample (divided by n - 1); null with fewer than two values.
std::optional<double> sd(std::span<const double> values);

/// Half the width of the 95 % confidence interval of a mean of n values whose sample deviation is
/// `deviation`: t(0.975, n - 1) * deviation / sqrt(n). n is at least 2 (Error otherwise).
/// It is also the smallest observed difference that n seeds tell from zero at p < 0.05.
double ci95_half_width(double deviation, int64_t n);

/// A mean difference and what Student's t (n - 1 degrees of freedom) says of it.
struct PairedDifference {
  int64_t n = 0;
  double mean = 0;             ///< NaN when n is 0
  std::optional<double> sd;    ///< of the differences; null, as are the next two, when n < 2
  std::optional<double> ci95;  ///< half width of the 95 % interval
  std::optional<double> p;     ///< two-sided, against a difference of zero
};

/// a[i] - b[i], where i is the seed. Throws Error when the lengths differ.
PairedDifference paired_difference(std::span<const double> a, std::span<const double> b);

/// The smallest n, at least 2, whose ci95_half_width at this deviation is no more than
/// `difference`.
int64_t seeds_to_resolve(double difference, double deviation);

}  // namespace headroom::experiments
