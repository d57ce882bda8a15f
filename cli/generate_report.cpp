// Speed, bytes, work, and what beams and drafts came to.
#include "cli/generate_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace headroom::cli {

namespace {

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

/// New tokens after the first of each row, for which there is a pass of their own.
double decode_rate(const GenerateReport& r) {
  const infer::GenerateStats& s = r.stats;
  return per_second(r.drafted ? s.accepted + s.judged : s.decode_tokens, s.decode_seconds);
}

double speed_up(const GenerateReport& r) {
  const double plain = per_second(r.plain_tokens, r.plain_seconds);
  return plain > 0 ? decode_rate(r) / plain : 0;
}

std::string cache_line(const GenerateReport& r) {
  if (r.plan.slots == 0) {
    return "cache    none: every token recomputes its sequence";
  }
  if (r.beams > 1) {
    return fmt::format(
        "cache    {} bytes held for {} beams that share beginnings, {} of them in use at most; "
        "caches of their own would hold {}",
        r.stats.cache_bytes_held, r.beams, r.stats.cache_bytes_most, r.plan.separate_bytes);
  }
  return fmt::format("cache    {} bytes held; by the formula {}", r.stats.cache_bytes_held,
                     r.plan.cache_formula);
}

std::string draft_line(const GenerateReport& r) {
  const infer::GenerateStats& s = r.stats;
  return fmt::format(
      "draft    {} of {} guesses accepted ({:.1f} %), {:.2f} tokens per pass of the model; {:.2f} "
      "times as fast as the {} tokens drawn without it",
      s.accepted, s.drafted, 100 * share(s.accepted, s.drafted),
      share(s.accepted + s.judged, s.judged), speed_up(r), r.plain_tokens);
}

}  // namespace

std::vector<std::string> stats_lines(const GenerateReport& r) {
  const infer::GenerateStats& s = r.stats;
  std::vector<std::string> lines = {
      fmt::format("prefill  {} tokens at {:.1f} tokens/s", s.prefill_tokens,
                  per_second(s.prefill_tokens, s.prefill_seconds)),
      fmt::format("decode   {} tokens at {:.1f} tokens/s",
                  r.drafted ? s.accepted + s.judged : s.decode_tokens, decode_rate(r)),
      fmt::format("weights  {} bytes in {}, read once in a pass", r.weight_bytes, r.weights),
      cache_line(r),
      fmt::format("passes   {} of the model; {} tape nodes", s.work.passes, s.tape_nodes),
      fmt::format(
          "work     {:.4g} FLOP; {} tokens through the layers; logits of {} computed, of {} "
          "used; {} bytes of cache read",
          static_cast<double>(s.work.flop), s.work.rows, s.work.logit_rows, s.logit_rows_used,
          s.work.cache_bytes_read)};
  if (r.drafted) {
    lines.push_back(draft_line(r));
  }
  return lines;
}

nlohmann::ordered_json stats_json(const GenerateReport& r) {
  const infer::GenerateStats& s = r.stats;
  nlohmann::ordered_json json = {
      {"prefill_tokens", s.prefill_tokens},
      {"loaded_tokens", s.loaded_tokens},
      {"prefill_tokens_per_s", per_second(s.prefill_tokens, s.prefill_seconds)},
      {"decode_tokens", s.decode_tokens},
      {"decode_tokens_per_s", decode_rate(r)},
      {"passes", s.work.passes},
      {"flop", s.work.flop},
      {"model_rows", s.work.rows},
      {"logit_rows", s.work.logit_rows},
      {"logit_rows_used", s.logit_rows_used},
      {"weights", r.weights},
      {"weight_bytes_per_pass", r.weight_bytes},
      {"cache_tokens", r.plan.slots},
      {"cache_bytes", s.cache_bytes_held},
      {"cache_bytes_formula", r.plan.cache_bytes},
      {"cache_bytes_in_use", s.cache_bytes_most},
      {"cache_bytes_read", s.work.cache_bytes_read},
      {"tape_nodes", s.tape_nodes}};
  if (r.beams > 0) {
    json["beams"] = r.beams;
    json["cache_bytes_separate"] = r.plan.separate_bytes;
  }
  if (r.drafted) {
    json["draft"] = {{"guesses", s.drafted},
                     {"accepted", s.accepted},
                     {"acceptance", share(s.accepted, s.drafted)},
                     {"tokens_per_pass", share(s.accepted + s.judged, s.judged)},
                     {"flop", s.draft_work.flop},
                     {"plain_tokens_per_s", per_second(r.plain_tokens, r.plain_seconds)},
                     {"speed_up", speed_up(r)}};
  }
  return json;
}

}  // namespace headroom::cli
