// `headroom plan`: how large a model is before it exists, every figure with its formula.
#include <CLI/App.hpp>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cli/byte_size.h"
#include "cli/commands.h"
#include "cli/plan.h"
#include "cli/plan_reliefs.h"
#include "configs/size.h"
#include "kernels/threads.h"
#include "tensor/check.h"
#include "tensor/dtype.h"

namespace headroom::cli {
namespace {

using configs::ModelConfig;

struct PlanOptions {
  std::string argument;
  int64_t context = 0;  // 0: block_size
  int64_t batch = 1;
  std::string dtype = "f32";
  std::optional<std::string> memory;
  std::string study;
};

configs::KVTypes cache_types(const std::string& dtype) {
  const std::optional<configs::KVType> type = configs::value_named<configs::KVType>(dtype);
  check_input(type.has_value() && type != configs::KVType::f64,
              "--dtype is {}, but must be f32, bf16, f16, int8 or int4", dtype);
  return {*type, *type};
}

/// The study that --study names, or the sweep that a run is part of.
experiments::MeasuredLosses find_measured(const PlanOptions& options,
                                          const std::filesystem::path& run) {
  if (!options.study.empty()) {
    return experiments::read_measured(options.study);
  }
  if (run.empty()) {
    return {};
  }
  const std::filesystem::path sweep = (std::filesystem::absolute(run) / "..").lexically_normal();
  return std::filesystem::exists(sweep / "results.json") ? experiments::read_measured(sweep)
                                                         : experiments::MeasuredLosses();
}

Plan settle(const PlanOptions& options, const Common& common) {
  check_input(options.study.empty() || options.memory,
              "--study is {}, but without --memory there is nothing to rank", options.study);
  ConfigArgument argument = load_config_argument(options.argument, common);
  Plan plan;
  const std::optional<int64_t> vocabulary = find_vocabulary(argument);
  if (!vocabulary) {
    note(common, fmt::format("the vocabulary is taken to be {}: there is no corpus to count "
                             "characters in, and model.vocab_size is 0",
                             kUsualVocabulary));
  }
  plan.config = std::move(argument.config);
  plan.name = argument.name;
  plan.vocab_size = vocabulary.value_or(kUsualVocabulary);
  plan.context = options.context == 0 ? plan.model().block_size : options.context;
  plan.batch = options.batch;
  plan.dtype = options.dtype;
  plan.cache_types = cache_types(options.dtype);
  plan.precision =
      train::choose_precision(common.precision.value_or(plan.config.train.precision),
                              common.device.value_or(configs::first_of(plan.config.train.device)),
                              kernels::has_native_bf16());
  if (options.memory) {
    plan.memory = parse_byte_size(*options.memory, "--memory");
    plan.measured = find_measured(options, argument.run);
    plan.reliefs = experiments::rank_reliefs(plan.model(),
                                             {.vocab_size = plan.vocab_size,
                                              .context = plan.context,
                                              .batch = plan.batch,
                                              .types = plan.cache_types,
                                              .memory = *plan.memory},
                                             plan.measured);
  }
  return plan;
}

nlohmann::ordered_json to_json(const Plan& plan) {
  const ModelConfig& model = plan.model();
  nlohmann::ordered_json by_tensor;
  for (const configs::ParameterSize& each : configs::parameters(model, plan.vocab_size)) {
    by_tensor[each.name] = each.count();
  }
  const int64_t token = configs::cache_bytes(model, 1, 1, plan.cache_types);
  nlohmann::ordered_json json = {
      {"params", configs::parameter_count(model, plan.vocab_size)},
      {"params_by_tensor", by_tensor},
      {"attention_params_per_layer", configs::attention_parameters_per_layer(model)},
      {"cache_bytes_per_token", token},
      {"cache_bytes_per_token_per_layer", token / model.n_layer},
      {"weights_bytes", configs::weights_bytes(model, plan.vocab_size)},
      {"optimizer_bytes",
       configs::optimizer_bytes(model, plan.vocab_size, plan.config.train.optimizer)},
      {"activation_bytes", plan.activation_bytes()}};
  for (const PlannedRelief& each : planned_reliefs(plan)) {
    json["reliefs"].push_back({{"name", each.name},
                               {"cache_bytes_per_token", each.token_bytes},
                               {"cache_bytes", each.cache_bytes},
                               {"decode_read_bytes", each.bytes_read}});
  }
  if (plan.memory) {
    for (const int64_t kv_heads : kv_head_choices(model)) {
      const Fit fit = find_fit(plan, with_kv_heads(model, kv_heads));
      json["fits"].push_back({{"n_kv_head", kv_heads},
                              {"longest_context", fit.context},
                              {"largest_batch", fit.batch}});
    }
    json["advice"] = advice_json(plan);
  }
  return json;
}

int run_plan(const PlanOptions& options, const Common& common) {
  const Plan plan = settle(options, common);
  if (common.json) {
    print_json(to_json(plan));
    return 0;
  }
  print(plan_text(plan));
  return 0;
}

}  // namespace

int64_t Plan::activation_bytes() const {
  return configs::activation_bytes(model(), vocab_size, model().block_size, config.train.batch_size,
                                   precision.dtype == DType::bf16 ? 2 : 4);
}

std::vector<int64_t> kv_head_choices(const ModelConfig& model) {
  std::vector<int64_t> others;
  for (int64_t d = 1; d * d <= model.n_head; ++d) {
    if (model.n_head % d == 0) {
      others.push_back(d);
      others.push_back(model.n_head / d);
    }
  }
  std::sort(others.begin(), others.end(), std::greater<>());
  others.erase(std::unique(others.begin(), others.end()), others.end());
  std::erase(others, model.n_kv_head);
  others.insert(others.begin(), model.n_kv_head);
  return others;
}

ModelConfig with_kv_heads(const ModelConfig& model, int64_t kv_heads) {
  ModelConfig grouped = model;
  grouped.attention = configs::AttentionKind::gqa;
  grouped.given_kv_rank = grouped.given_rope_head_dim = 0;
  grouped.n_kv_head = kv_heads;
  return grouped;
}

Fit find_fit(const Plan& plan, const ModelConfig& model) {
  const int64_t weights = configs::weights_bytes(model, plan.vocab_size);
  const int64_t left = std::max<int64_t>(0, *plan.memory - weights);
  const bool bounded = model.position == configs::Position::learned;
  const int64_t tokens = left / configs::cache_bytes(model, 1, plan.batch, plan.cache_types);
  return {bounded ? std::min(tokens, model.block_size) : tokens,
          left / configs::cache_bytes(model, plan.context, 1, plan.cache_types)};
}

Action add_plan(CLI::App& app, Common& common) {
  const auto options = std::make_shared<PlanOptions>();
  app.add_option("CONFIG|RUN|PRESET", options->argument,
                 "a YAML config, a run folder, or a preset's name")
      ->required();
  add_whole(app, "--context", options->context, 1, 1'000'000'000'000,
            "tokens in the cache of a sequence", "block_size");
  add_whole(app, "--batch", options->batch, 1, 1'000'000'000, "sequences in the cache");
  app.add_option("--dtype", options->dtype,
                 "type of cached keys and values: f32, bf16, f16, int8 or int4")
      ->type_name("TYPE")
      ->default_str(options->dtype);
  app.add_option("--memory", options->memory,
                 "bytes for weights and cache: adds what fits, and the reliefs that make it fit, "
                 "ranked by what they cost in loss")
      ->type_name("SIZE");
  app.add_option("--study", options->study,
                 "a folder of sweep or reproduce whose measured losses rank the reliefs")
      ->type_name("DIR")
      ->default_str("the sweep that RUN is part of");
  add_precision(app, common, "train.precision");
  set_footer(app,
             "  headroom plan gqa --set model.n_kv_head=2 --context 4096 --batch 8 --memory 8GiB\n"
             "  headroom plan runs/sweep/kv8-seed1 --memory 24GiB --context 100000",
             true);
  return [options, &common] { return run_plan(*options, common); };
}

}  // namespace headroom::cli
