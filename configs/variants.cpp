// Fairness rules of the sweep.
#include "configs/variants.h"

#include <algorithm>
#include <cmath>

#include "configs/count.h"
#include "configs/rules.h"
#include "configs/size.h"
#include "tensor/check.h"

namespace headroom::configs {
namespace {

int64_t rounded_ratio(int64_t value, double ratio) {
  return static_cast<int64_t>(std::llround(static_cast<double>(value) * ratio));
}

/// Moves what `model` saves against `yardstick` in attention to its MLP, or takes from it what it
/// costs.
void grow_mlp(ModelConfig& model, const ModelConfig& yardstick) {
  ModelConfig one_more = model;
  one_more.given_n_ff = model.n_ff() + 1;
  const int64_t per_unit = parameter_count(one_more, 1) - parameter_count(model, 1);
  const int64_t saved = parameter_count(yardstick, 1) - parameter_count(model, 1);
  const int64_t units = (Count(std::abs(saved)) + per_unit / 2).value() / per_unit;
  model.given_n_ff = std::max<int64_t>(1, model.n_ff() + (saved < 0 ? -units : units));
}

/// Cuts the steps of `config` until it trains for the FLOP of `yardstick`.
void cut_steps(Config& config, const Config& yardstick, int64_t vocab_size) {
  const auto flop = [&](const Config& each) {
    return static_cast<double>(step_flop(each.model, vocab_size, tokens_per_step(each)));
  };
  const double ratio = flop(yardstick) / flop(config);
  TrainConfig& train = config.train;
  train.steps = train.steps == 0 ? 0 : std::max<int64_t>(1, rounded_ratio(train.steps, ratio));
  train.warmup_steps = std::min(train.steps, rounded_ratio(train.warmup_steps, ratio));
  if (train.eval_every != 0) {
    train.eval_every = std::max<int64_t>(1, rounded_ratio(train.eval_every, ratio));
  }
}

/// Only a latent has a rank, which base may name for that row of its sweep.
Config with_heads(const Config& base, int64_t n_kv_head) {
  Config config = base;
  config.model.n_kv_head = n_kv_head;
  if (!config.model.mla()) {
    config.model.given_kv_rank = config.model.given_rope_head_dim = 0;
  }
  return config;
}

Config multi_head(const Config& base, int64_t vocab_size) {
  Config config = with_heads(base, base.model.n_head);
  check_input(
      parameter_count(config.model, vocab_size) < Count::kMost,
      "[sweep] the model has more than 2^63 parameters: lower model.n_embd or model.n_layer");
  return config;
}

}  // namespace

Config variant(const Config& base, int64_t n_kv_head, int64_t vocab_size) {
  Config config = with_heads(base, n_kv_head);
  check_config(config);
  const Config yardstick = multi_head(base, vocab_size);
  switch (base.sweep.fair) {
    case Fairness::same_shape:
      break;
    case Fairness::same_params:
      grow_mlp(config.model, yardstick.model);
      break;
    case Fairness::same_cache:
      config.model.n_layer = base.model.n_layer * (base.model.n_head / n_kv_head);
      cut_steps(config, yardstick, vocab_size);
      break;
  }
  return config;
}

Config relief_variant(const Config& base, Relief relief, int64_t vocab_size) {
  check_config(base);
  check_input(base.sweep.fair != Fairness::same_cache,
              "[sweep] {} has no whole number of layers at the cache of multi-head attention",
              name_of(relief));
  const Config yardstick = multi_head(base, vocab_size);
  Config config = yardstick;
  config.sweep.also.clear();  // a model that has the relief has no sweep beside it
  switch (relief) {
    case Relief::mla:
      config.model.attention = AttentionKind::mla;
      config.model.given_kv_rank = base.model.given_kv_rank;
      config.model.given_rope_head_dim = base.model.given_rope_head_dim;
      break;
    case Relief::window:
      config.model.window = std::max<int64_t>(1, base.model.block_size / 4);
      break;
    case Relief::learned_sink:
      config.model.sink = SinkKind::learned;
      break;
  }
  check_config(config);
  if (base.sweep.fair == Fairness::same_params) {
    grow_mlp(config.model, yardstick.model);
  }
  return config;
}

std::vector<Config> variants(const Config& base, int64_t vocab_size) {
  for (const int64_t n_kv_head : base.sweep.n_kv_head) {
    check_input(base.model.n_head % n_kv_head == 0,
                "[sweep] sweep.n_kv_head has {} and model.n_head is {}, but n_head must be a "
                "multiple of each",
                n_kv_head, base.model.n_head);
  }
  std::vector<Config> configs;
  for (const int64_t n_kv_head : base.sweep.n_kv_head) {
    configs.push_back(variant(base, n_kv_head, vocab_size));
  }
  return configs;
}

}  // namespace headroom::configs
