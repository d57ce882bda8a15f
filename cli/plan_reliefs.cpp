// Formulas of the reliefs.
#include "cli/plan_reliefs.h"

#include <algorithm>

#include "configs/count.h"
#include "infer/block_cache.h"
#include "infer/cache_size.h"

namespace headroom::cli {
namespace {

using configs::Count;
using configs::ModelConfig;

constexpr int64_t kSparseTokens = 16 * 64;  // that block-sparse attention reads

int64_t token_bytes(const Plan& plan, const ModelConfig& model) {
  return configs::cache_bytes(model, 1, 1, plan.cache_types);
}

PlannedRelief latent(const Plan& plan) {
  ModelConfig m = plan.model();
  m.attention = configs::AttentionKind::mla;
  m.window = m.sinks = 0;
  const int64_t bytes = configs::cache_bytes(m, plan.context, plan.batch, plan.cache_types);
  return {fmt::format("mla, kv_rank {} and {} rotated", m.kv_rank(), m.rope_head_dim()),
          token_bytes(plan, m), bytes, bytes,
          configs::cache_formula(m, plan.context, plan.batch, plan.cache_types)};
}

PlannedRelief window(const Plan& plan) {
  ModelConfig m = plan.model();
  if (m.window == 0) {
    m.window = std::max<int64_t>(1, m.block_size / 4);
  }
  const infer::BlockTable table({}, plan.context);
  const int64_t local = configs::local_layers(m);
  const int64_t seen = std::min(plan.context, (Count(m.window) + m.sinks).value());
  const Count keys = Count(m.n_layer - local) * plan.context + Count(local) * seen;
  return {fmt::format("window of {} in {} of {} layers", m.window, local, m.n_layer),
          token_bytes(plan, m), infer::cache_bytes(m, table, plan.batch, plan.cache_types),
          (keys * configs::cache_bytes_per_token(m, plan.cache_types) * plan.batch).value(),
          infer::cache_formula(m, table, plan.batch, plan.cache_types)};
}

PlannedRelief linear_attention(const Plan& plan) {
  const ModelConfig& m = plan.model();
  const int64_t row = configs::kv_vector_bytes(plan.cache_types.k, m.head_dim());
  const int64_t state = (Count(m.n_layer) * m.n_head * m.head_dim() * row * plan.batch).value();
  return {"linear attention, not built", 0, state, state,
          fmt::format("state n_layer {} * n_head {} * head_dim {}^2 * batch {}, for any number of "
                      "tokens",
                      m.n_layer, m.n_head, m.head_dim(), plan.batch)};
}

PlannedRelief block_sparse(const Plan& plan) {
  ModelConfig m = plan.model();
  m.window = m.sinks = 0;
  const auto bytes = [&](int64_t tokens) {
    return configs::cache_bytes(m, tokens, plan.batch, plan.cache_types);
  };
  return {"block-sparse, not built", token_bytes(plan, m), bytes(plan.context),
          bytes(std::min(plan.context, kSparseTokens)), "keeps every key, reads 16 blocks of 64"};
}

}  // namespace

std::vector<PlannedRelief> planned_reliefs(const Plan& plan) {
  return {latent(plan), window(plan), linear_attention(plan), block_sparse(plan)};
}

}  // namespace headroom::cli
