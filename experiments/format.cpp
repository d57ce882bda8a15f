// Numbers, sizes and times as the table and the report write them.
#include "experiments/format.h"

#include <fmt/format.h>

#include <cmath>

namespace headroom::experiments {
namespace {

// Three decimals, as losses have; four where three would print "± 0.000".
int decimals_for(double half_width) { return half_width < 0.0005 ? 4 : 3; }

}  // namespace

std::string format_half_width(double half_width) {
  return fmt::format("{:.{}f}", half_width, decimals_for(half_width));
}

std::string format_loss(double loss) {
  return std::isfinite(loss) ? fmt::format("{:.3f}", loss) : "diverged";
}

std::string format_loss(double loss, std::optional<double> spread) {
  if (!spread || !std::isfinite(loss)) return format_loss(loss);
  return fmt::format("{:.3f} ± {:.3f}", loss, *spread);
}

std::string format_difference(double difference, std::optional<double> half_width) {
  if (!half_width) return fmt::format("{:+.3f}", difference);
  const int decimals = decimals_for(*half_width);
  return fmt::format("{:+.{}f} ± {:.{}f}", difference, decimals, *half_width, decimals);
}

std::string format_p(double p) { return p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", p); }

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  const double kib = static_cast<double>(bytes) / 1024;
  return kib < 1024 ? fmt::format("{:.1f} KiB", kib) : fmt::format("{:.1f} MiB", kib / 1024);
}

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t end = digits.size(); end > first + 3; end -= 3) digits.insert(end - 3, 1, ',');
  return digits;
}

std::string format_tokens(int64_t tokens) {
  const double count = static_cast<double>(tokens);
  if (count < 1e3) return std::to_string(tokens);
  if (count < 1e6) return fmt::format("{:.3g} k", count / 1e3);
  if (count < 1e9) return fmt::format("{:.3g} M", count / 1e6);
  return fmt::format("{:.3g} B", count / 1e9);
}

std::string format_seconds(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

size_t display_width(std::string_view utf8) {
  size_t width = 0;
  for (const char c : utf8) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

}  // namespace headroom::experiments
