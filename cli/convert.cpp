// headroom convert: pools the KV heads of a trained model into a run that training can go on from.
#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "configs/count.h"
#include "configs/size.h"
#include "experiments/convert.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

struct ConvertOptions {
  std::string run, folder;
  int64_t n_kv_head = 0;
  int64_t steps = 0;  // 0: a share of the run's
};

void print_result(const Common& common, const ConvertOptions& options,
                  const experiments::PooledRun& pooled) {
  const configs::ModelConfig &before = pooled.original.config.model, &after = pooled.config.model;
  const auto token = [](const configs::ModelConfig& model) {
    return configs::cache_bytes(model, 1, 1, configs::KVTypes());
  };
  const int64_t steps = pooled.config.train.steps;
  if (common.json) {
    print_json({{"run", options.folder},
                {"n_kv_head_before", before.n_kv_head},
                {"n_kv_head", after.n_kv_head},
                {"cache_bytes_per_token_before", token(before)},
                {"cache_bytes_per_token", token(after)},
                {"original_loss_nats", pooled.original_loss},
                {"pooled_loss_nats", pooled.pooled_loss},
                {"steps", steps}});
    return;
  }
  print(fmt::format(
      "{} pooled from {} to {} KV heads, each the mean of {}\n"
      "validation loss  {:.4f} nats per token before, {:.4f} pooled\n"
      "cache            {} per token before, {} now, in f32\n"
      "run folder       {}, at step 0 of {}\n"
      "to uptrain it:   headroom train {}/config.yaml --out {} --resume\n",
      options.run, before.n_kv_head, after.n_kv_head, before.n_kv_head / after.n_kv_head,
      pooled.original_loss, pooled.pooled_loss, configs::human_bytes(token(before)),
      configs::human_bytes(token(after)), options.folder, steps, options.folder, options.folder));
}

int run_convert(const ConvertOptions& options, const Common& common) {
  experiments::require_new_folder(options.folder);
  const experiments::PooledRun pooled =
      experiments::pool_run(options.run, options.n_kv_head,
                            options.steps == 0 ? std::nullopt : std::optional(options.steps),
                            common.overrides, common.device);
  for (const std::string& each : pooled.original.notes) {
    note(common, each);
  }
  experiments::write_pooled_run(pooled, options.folder);
  print_result(common, options, pooled);
  return 0;
}

}  // namespace

Action add_convert(CLI::App& app, Common& common) {
  auto options = std::make_shared<ConvertOptions>();
  app.add_option("RUN", options->run, "a run folder (its best checkpoint) or a checkpoint in one")
      ->required();
  add_whole(app, "--n-kv-head", options->n_kv_head, 1, 1'000'000'000,
            "KV heads of the new model, a divisor of the run's", "")
      ->required();
  app.add_option("--out", options->folder, "the new run's folder")->type_name("RUN2")->required();
  add_whole(app, "--steps", options->steps, 1, 1'000'000'000'000,
            "steps of the uptraining that the new run is set up for", "5 % of the run's");
  set_footer(app,
             "  headroom convert runs/mha --n-kv-head 2 --out runs/kv2\n"
             "  headroom train runs/kv2/config.yaml --out runs/kv2 --resume\n\n"
             "Each new head is the mean of those it replaces; uptraining brings the loss back.");
  return [options, &common] { return run_convert(*options, common); };
}

}  // namespace headroom::cli
