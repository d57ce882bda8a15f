// Numbers as people read them, and text as wide as a terminal shows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::experiments {

/// "1.488"; "diverged" when not finite.
std::string format_loss(double loss);

/// "1.488 ± 0.004"; without a spread only the loss.
std::string format_loss(double loss, std::optional<double> spread);

/// "0.004"; a fourth decimal where three would print 0.000.
std::string format_half_width(double half_width);

/// "+0.012 ± 0.004", with the half width's decimals.
std::string format_difference(double difference, std::optional<double> half_width);

/// "0.134", "< 0.001".
std::string format_p(double p);

/// "512 B", "1.5 KiB", "12.0 KiB", "3.2 MiB".
std::string format_bytes(int64_t bytes);

/// "4,786,432".
std::string format_count(int64_t count);

/// "950", "4.1 M", "1.25 B" as rounded thousands, millions and billions: "2.46 M".
std::string format_tokens(int64_t tokens);

/// "42 s", "12 min 3 s", "3 h 5 min".
std::string format_seconds(double seconds);

/// Columns a terminal uses: code points, of which this project's tables hold no wide or combining
/// ones.
size_t display_width(std::string_view utf8);

}  // namespace headroom::experiments
