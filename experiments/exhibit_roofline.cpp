// Exhibit prefill-decode: both phases under this machine's measured roofline.
#include <fmt/format.h>

#include <algorithm>

#include "experiments/exhibits.h"
#include "experiments/line_chart.h"
#include "experiments/roofline.h"

namespace headroom::experiments {
namespace {

/// The roof from `low` to `high` FLOP per byte: bandwidth times intensity, up to the peak.
Series roof(const char* name, double bandwidth, double peak, double low, double high) {
  return {.name = name, .points = {{low, bandwidth * low}, {peak / bandwidth, peak}, {high, peak}}};
}

double decoded_gflops(const DecodePoint& point) {
  return point.flop_per_byte * static_cast<double>(point.bytes_per_token) * point.tokens_per_s /
         1e9;
}

std::vector<Series> chart_series(const Roofline& r) {
  double low = r.prefill.flop_per_byte, high = 2 * r.prefill.flop_per_byte;
  for (const DecodePoint& point : r.decode) low = std::min(low, point.flop_per_byte / 2);
  high = std::max(high, 2 * r.peak_fp32_gflops / r.read_bandwidth_gb_s);
  Series decode{.name = "decode"};
  for (const DecodePoint& point : r.decode) {
    decode.points.emplace_back(point.flop_per_byte, decoded_gflops(point));
  }
  return {roof("roof, fp32", r.read_bandwidth_gb_s, r.peak_fp32_gflops, low, high),
          {.name = "prefill", .points = {{r.prefill.flop_per_byte, r.prefill.gflops}}},
          decode};
}

std::vector<ExhibitRow> rows(const Roofline& r) {
  const DecodePoint& decode = r.decode.front();  // weights in f32
  const double ceiling = decode.tokens_per_s / decode.fraction_of_bandwidth;
  return {
      {.figure = "prefill, FLOP per byte",
       .published = 784,
       .ours = r.prefill.flop_per_byte,
       .note = fmt::format("a prompt of {} tokens: it grows with the prompt", r.prefill.tokens)},
      {.figure = "decode, FLOP per byte",
       .published = 0.4,
       .ours = decode.flop_per_byte,
       .note = "weights and cache in f32: half a multiply-add per byte at most"},
      {.figure = "prefill", .ours = r.prefill.tokens_per_s, .unit = "tokens/s"},
      {.figure = "prefill, of the arithmetic's ceiling",
       .ours = 100 * r.prefill.fraction_of_peak,
       .unit = "%"},
      {.figure = "decode", .published = 101, .ours = decode.tokens_per_s, .unit = "tokens/s"},
      {.figure = "decode, its ceiling",
       .published = 1550,
       .ours = ceiling,
       .unit = "tokens/s",
       .note = "bytes read per second over bytes read per token"},
      {.figure = "decode, of its ceiling",
       .published = 100 * 101.0 / 1550,
       .ours = 100 * decode.fraction_of_bandwidth,
       .unit = "%"},
      {.figure = "read bandwidth", .ours = r.read_bandwidth_gb_s, .unit = "GB/s"},
      {.figure = "FMA peak, fp32", .ours = r.peak_fp32_gflops, .unit = "GFLOP/s"}};
}

}  // namespace

Exhibit prefill_decode_exhibit(const Study& study) {
  const configs::ModelConfig model = study.preset("gpt-124m").model;
  RooflineOptions options;
  options.prefill_tokens = study.quick ? 1024 : 2048;
  options.steps = study.quick ? 10 : 32;
  const Roofline r = bench_roofline(model, model.vocab_size, options, study.progress);
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "The 123.6 M model, untrained; a prompt of {} tokens in f32, then single tokens at context "
      "{}. "
      "Bandwidth and peak are measured between the runs. headroom bench roofline has more.",
      r.prefill.tokens, options.context);
  exhibit.rows = rows(r);
  exhibit.table = {
      {"decode, weights in", "tokens/s", "bytes/token (MB)", "FLOP/byte", "of its ceiling"}};
  for (const DecodePoint& point : r.decode) {
    exhibit.table.push_back(
        {point.weights, fmt::format("{:.1f}", point.tokens_per_s),
         fmt::format("{:.1f}", static_cast<double>(point.bytes_per_token) / 1e6),
         fmt::format("{:.2f}", point.flop_per_byte),
         fmt::format("{:.1f} %", 100 * point.fraction_of_bandwidth)});
  }
  const std::vector<Series> series = chart_series(r);
  exhibit.chart = line_chart({.xlabel = "FLOP per byte",
                              .ylabel = "GFLOP/s",
                              .series = series,
                              .log_x = true,
                              .log_y = true});
  exhibit.legend = legend_of(series);
  exhibit.caption =
      "The roofline, both axes logarithmic: memory bounds what lies left of the knee, arithmetic "
      "what "
      "lies right of it. Decode: weights in f32, bf16 and int8, from left to right.";
  exhibit.why =
      "A GPU spends most of a decoded token on launching kernels, so it reaches a fifteenth of "
      "what "
      "its memory allows; here the step is a sweep over the weights, near what memory gives. The "
      "FLOP "
      "per byte are arithmetic and depend on the prompt's length and the types, not on the "
      "machine.";
  return exhibit;
}

}  // namespace headroom::experiments
