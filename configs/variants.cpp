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

/// Moves what `model` saves against `yardstick` in attention to its MLP.
void grow_mlp(ModelConfig& model, const ModelConfig& yardstick) {
  ModelConfig one_more = model;
  one_more.given_n_ff = model.n_ff() + 1;
  const int64_t per_unit = parameter_count(one_more, 1) - parameter_count(model, 1);
  const int64_t saved = parameter_count(yardstick, 1) - parameter_count(model, 1);
  model.given_n_ff = model.n_ff() + (Count(saved) + per_unit / 2).value() / per_unit;
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

}  // namespace

Config variant(const Config& base, int64_t n_kv_head, int64_t vocab_size) {
  Config yardstick = base;
  yardstick.model.n_kv_head = base.model.n_head;
  Config config = base;
  config.model.n_kv_head = n_kv_head;
  check_config(config);
  check_input(
      parameter_count(yardstick.model, vocab_size) < Count::kMost,
      "[sweep] the model has more than 2^63 parameters: lower model.n_embd or model.n_layer");
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
