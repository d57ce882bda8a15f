// The plan as text: parameters, memory, cache, FLOP, and the choices of n_kv_head.
#include "cli/plan.h"

#include <array>

#include "cli/common.h"
#include "cli/plan_reliefs.h"
#include "cli/table.h"
#include "configs/count.h"
#include "configs/size.h"
#include "experiments/format.h"
#include "infer/block_cache.h"
#include "infer/cache_size.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

using configs::Count;
using configs::human_bytes;
using configs::ModelConfig;
using experiments::format_count;

std::string count_text(int64_t count) {
  return Count(count).saturated() ? "more than 9.2e18" : format_count(count);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

std::string heading(const Plan& plan) {
  const ModelConfig& m = plan.model();
  if (m.mla() || m.window > 0) {
    return fmt::format("{}: {} layers, {} wide, {}, context {}, vocabulary {}\n", plan.name,
                       m.n_layer, m.n_embd, attention_in_words(m), m.block_size, plan.vocab_size);
  }
  const std::string kind = m.n_kv_head == m.n_head ? "multi-head attention"
                           : m.n_kv_head == 1      ? "multi-query attention"
                                                   : "grouped-query attention";
  return fmt::format(
      "{}: {} layers, {} wide, {} query heads of {} sharing {} key/value head{} ({}), context {}, "
      "vocabulary {}\n",
      plan.name, m.n_layer, m.n_embd, m.n_head, m.head_dim(), m.n_kv_head,
      m.n_kv_head == 1 ? "" : "s", kind, m.block_size, plan.vocab_size);
}

std::string parameter_part(const Plan& plan) {
  const ModelConfig& m = plan.model();
  std::vector<Row> rows = {{"Parameters", "shape", "count"}};
  const auto add = [&](const configs::ParameterSize& each, const std::string& name) {
    rows.push_back({"  " + name, shape_text(each.shape), count_text(each.count())});
  };
  for (const configs::ParameterSize& each : configs::outer_parameters(m, plan.vocab_size)) {
    add(each, each.name);
  }
  Count block;
  const std::string prefix = "model.layers.0.";
  rows.push_back({fmt::format("  in each of the {} blocks, model.layers.N.", m.n_layer)});
  for (const configs::ParameterSize& each : configs::layer_parameters(m, 0)) {
    add(each, "  " + each.name.substr(prefix.size()));
    block += each.count();
  }
  rows.push_back({"    one block", "", count_text(block.value())});
  rows.push_back({"    its attention projections",
                  m.mla() ? "n_embd * (n_head * (2 * head_dim + rope_head_dim) + kv_rank + "
                            "rope_head_dim) + 2 * n_head * head_dim * kv_rank"
                          : "2 * n_embd * (n_head + n_kv_head) * head_dim",
                  count_text(configs::attention_parameters_per_layer(m))});
  rows.push_back({"  all", "", count_text(configs::parameter_count(m, plan.vocab_size))});
  return aligned(rows, 2);
}

std::string memory_part(const Plan& plan) {
  const ModelConfig& m = plan.model();
  const configs::TrainConfig& t = plan.config.train;
  const int64_t weights = configs::weights_bytes(m, plan.vocab_size);
  const int64_t optimizer = configs::optimizer_bytes(m, plan.vocab_size, t.optimizer);
  const int64_t activations = plan.activation_bytes();
  const bool muon = t.optimizer == configs::OptimizerKind::muon;
  const std::vector<Row> rows = {
      {"Memory of training"},
      {"  weights", human_bytes(weights),
       fmt::format("4 bytes * {} parameters, fp32 in every precision",
                   count_text(configs::parameter_count(m, plan.vocab_size)))},
      {"  gradients", human_bytes(weights), "as the weights"},
      {"  optimizer", human_bytes(optimizer),
       muon ? "muon: 4 bytes for each element of a block's matrix, 8 for any other"
            : "adamw: 8 bytes for each parameter"},
      {"  activations", human_bytes(activations),
       fmt::format("estimate for batch_size {} * block_size {} in {}", t.batch_size, m.block_size,
                   plan.precision.sentence)},
      {"  all", human_bytes((Count(weights) * 2 + optimizer + activations).value())}};
  return aligned(rows, 3);
}

std::string cache_part(const Plan& plan) {
  const ModelConfig& m = plan.model();
  const int64_t token = configs::cache_bytes(m, 1, 1, plan.cache_types);
  const infer::BlockTable table({}, plan.context);
  const int64_t all = infer::cache_bytes(m, table, plan.batch, plan.cache_types);
  const std::vector<Row> rows = {
      {fmt::format("Key/value cache in {}", plan.dtype)},
      {"  a token in a layer", human_bytes(token / m.n_layer),
       configs::token_formula(m, plan.cache_types)},
      {"  a token", human_bytes(token), configs::cache_formula(m, 1, 1, plan.cache_types)},
      {fmt::format("  {} tokens * {}", format_count(plan.context), format_count(plan.batch)),
       human_bytes(all), infer::cache_formula(m, table, plan.batch, plan.cache_types)}};
  return aligned(rows, 3);
}

/// "126.1 GFLOP".
std::string flop_text(int64_t flop) {
  constexpr std::array kUnits = {"GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  double value = static_cast<double>(flop) / 1e9;
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return Count(flop).saturated() ? count_text(flop) + " FLOP"
                                 : fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string step_part(const Plan& plan) {
  const ModelConfig& m = plan.model();
  Count matrices = Count(plan.vocab_size) * m.n_embd;
  for (const configs::ParameterSize& each : configs::layer_parameters(m, 0)) {
    matrices += each.shape.size() == 2 ? Count(each.count()) * m.n_layer : Count();
  }
  const int64_t tokens = configs::tokens_per_step(plan.config);
  const int64_t flop = configs::step_flop(m, plan.vocab_size, tokens);
  if (m.mla() || m.window > 0) {
    return fmt::format(
        "A training step of {} tokens: {}\n"
        "  6 * (matrices, head included, {} * tokens {} + attention's multiply-adds {} of a "
        "sequence * sequences {})\n",
        format_count(tokens), flop_text(flop), count_text(matrices.value()), tokens,
        count_text(configs::attention_multiply_adds(m, m.block_size)), tokens / m.block_size);
  }
  return fmt::format(
      "A training step of {} tokens: {}\n"
      "  6 * (matrices, head included, {} + n_layer {} * n_head {} * head_dim {} * (block_size {} "
      "+ 1)) * tokens {}\n",
      format_count(tokens), flop_text(flop), count_text(matrices.value()), m.n_layer, m.n_head,
      m.head_dim(), m.block_size, tokens);
}

std::string choices_part(const Plan& plan) {
  std::vector<Row> rows = {{"n_kv_head", "parameters", "attention/layer", "cache/token",
                            fmt::format("cache of {} * {}", plan.context, plan.batch)}};
  if (plan.memory) {
    rows[0].push_back(fmt::format("longest context at {}", plan.batch));
    rows[0].push_back(fmt::format("largest batch of {}", plan.context));
  }
  for (const int64_t kv_heads : kv_head_choices(plan.model())) {
    const ModelConfig m = with_kv_heads(plan.model(), kv_heads);
    rows.push_back(
        {fmt::format("{}", kv_heads), count_text(configs::parameter_count(m, plan.vocab_size)),
         count_text(configs::attention_parameters_per_layer(m)),
         human_bytes(configs::cache_bytes(m, 1, 1, plan.cache_types)),
         human_bytes(configs::cache_bytes(m, plan.context, plan.batch, plan.cache_types))});
    if (plan.memory) {
      const Fit fit = find_fit(plan, m);
      rows.back().push_back(fit.context == 0 ? "none" : format_count(fit.context));
      rows.back().push_back(fit.batch == 0 ? "none" : format_count(fit.batch));
    }
  }
  const std::string fits =
      plan.memory
          ? fmt::format("What fits is weights (fp32) and cache in {}.\n", human_bytes(*plan.memory))
          : "";
  return aligned(rows, 0) + fits;
}

std::string reliefs_part(const Plan& plan) {
  std::vector<Row> rows = {{"other reliefs", "cache/token",
                            fmt::format("cache of {} * {}", plan.context, plan.batch),
                            "read by a decoding step"}};
  std::vector<std::string> explanations;
  for (const PlannedRelief& each : planned_reliefs(plan)) {
    rows.push_back({each.name, human_bytes(each.token_bytes), human_bytes(each.cache_bytes),
                    human_bytes(each.bytes_read)});
    explanations.push_back(fmt::format("  {}: {}\n", each.name, each.explanation));
  }
  return aligned(rows, 1) + fmt::format("{}", fmt::join(explanations, ""));
}

}  // namespace

std::string plan_text(const Plan& plan) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}{}", heading(plan), parameter_part(plan),
                     memory_part(plan), cache_part(plan), step_part(plan), choices_part(plan),
                     reliefs_part(plan), plan.memory ? "\n" + advice_text(plan) : "");
}

}  // namespace headroom::cli
