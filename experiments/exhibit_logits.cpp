// Exhibit logits-equal: the largest difference that the cache makes to a logit.
#include <fmt/format.h>

#include <array>

#include "experiments/exhibits.h"
#include "experiments/line_chart.h"
#include "infer/verify.h"

namespace headroom::experiments {
namespace {

struct Published {
  configs::Position position;
  const char* name;
  double difference;
};

std::vector<infer::CacheCheck> compare(configs::ModelConfig model, configs::Position position,
                                       int64_t vocab_size) {
  model.position = position;
  const nn::GPT gpt(model, vocab_size, nn::Scope{.seed = 1});
  const infer::CacheSpec spec;
  const infer::CacheUnderTest cache{infer::to_string(spec), spec.mask,
                                    infer::block_cache_maker(spec)};
  return infer::verify_published_setting(
      gpt, *infer::to_f64(gpt), cache,
      infer::synthetic_tokens(infer::kPublishedPrefill + infer::kPublishedDecode, vocab_size, 1,
                              0));
}

}  // namespace

Exhibit logits_equal_exhibit(const Study& study) {
  static constexpr std::array<Published, 2> kPublished = {
      {{configs::Position::rope, "rope", 3.65e-7},
       {configs::Position::learned, "learned", 3.32e-7}}};
  constexpr int64_t kVocabulary = 65;  // the published sweep's corpus has as many characters
  const configs::ModelConfig model = study.preset("gqa").model;
  Exhibit exhibit;
  exhibit.setting = fmt::format(
      "{} layers, {} wide, untrained; {} tokens at once, then {} one by one, against one pass over "
      "all of them without a cache.",
      model.n_layer, model.n_embd, infer::kPublishedPrefill, infer::kPublishedDecode);
  exhibit.table = {
      {"positions", "type", "largest difference", "largest logit", "bound on the ratio"}};
  BarChart chart{.xlabel = "positions and type",
                 .ylabel = "largest |full - cached|",
                 .groups = {},
                 .series = {{.name = "here"}, {.name = "published"}},
                 .log_y = true};
  for (const Published& published : kPublished) {
    study.progress(&published - kPublished.data(), std::ssize(kPublished));
    for (const infer::CacheCheck& check : compare(model, published.position, kVocabulary)) {
      exhibit.table.push_back({published.name, std::string(name_of(check.dtype)),
                               fmt::format("{:.2e}", check.max_abs_diff),
                               fmt::format("{:.3f}", check.max_abs_logit),
                               fmt::format("{:.0e}", check.bound)});
      const bool single = check.dtype == DType::f32;
      exhibit.rows.push_back(
          {.figure =
               fmt::format("largest |full - cached|, {}, {}", published.name, name_of(check.dtype)),
           .published = single ? std::optional(published.difference) : std::nullopt,
           .ours = check.max_abs_diff,
           .note = single ? (check.ok ? "within the bound" : "PAST THE BOUND")
                          : "the same weights and kernels in double precision"});
      const auto group = static_cast<double>(chart.groups.size());
      chart.groups.push_back(fmt::format("{} {}", published.name, name_of(check.dtype)));
      chart.series[0].points.emplace_back(group, check.max_abs_diff);
      if (single) chart.series[1].points.emplace_back(group, published.difference);
    }
  }
  exhibit.chart = bar_chart(chart);
  exhibit.legend = legend_of(chart.series);
  exhibit.caption = "On a logarithmic axis.";
  exhibit.why =
      "Both are rounding of 32-bit sums taken in another order; which digits come out depends on "
      "the "
      "shape, the weights and the order. In double precision, where an error of logic would stay "
      "as "
      "large as it is, the difference falls to the rounding of 64-bit sums.";
  return exhibit;
}

}  // namespace headroom::experiments
