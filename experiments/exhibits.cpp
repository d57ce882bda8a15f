// The exhibits in the order in which they are reported.
#include "experiments/exhibits.h"

namespace headroom::experiments {

const std::vector<ExhibitKind>& exhibit_kinds() {
  // clang-format off
  // id, title, whether it reads the sweep, usual seconds and those of a quick session, function
  static const std::vector<ExhibitKind> kKinds = {
      {"latency", "The next token, naive and cached", false, 60, 60, latency_exhibit},
      {"end-to-end", "256 tokens after a prompt of 3584", false, 1200, 75, end_to_end_exhibit},
      {"logits-equal", "Cached logits are the uncached ones", false, 2, 2, logits_equal_exhibit},
      {"memory-bill", "The cache's memory, as allocated", false, 15, 15, memory_bill_exhibit},
      {"fused-view", "Views of a fused projection, and copies", false, 3, 3, fused_view_exhibit},
      {"prefill-decode", "Prefill and decode under the roofline", false, 25, 15, prefill_decode_exhibit},
      {"kv-head-table", "Parameters, cache and loss by n_kv_head", true, 1, 1, kv_head_table_exhibit},
      {"cache-quality", "What fewer KV heads cost", true, 1, 1, cache_quality_exhibit},
      {"low-rank", "Keys and values of low rank", true, 40, 10, low_rank_exhibit},
      {"sink-mass", "Attention mass on token 0", true, 3, 1, sink_mass_exhibit},
      {"learned-sink", "Attention mass on learned sinks", true, 420, 20, learned_sink_exhibit},
      {"window-sinks", "Windows with and without sinks", true, 8, 2, window_sinks_exhibit},
      {"kv-bits", "Fewer bits, by n_kv_head", true, 280, 14, kv_bits_exhibit},
      {"attention-fused", "Materialised and tiled attention", false, 10, 3, attention_fused_exhibit},
      {"flop-100", "The work of 100 tokens", false, 15, 15, flop_100_exhibit},
      {"worked-step", "One decode step, by hand", false, 1, 1, worked_step_exhibit},
      {"presets", "What well-known models cache", false, 1, 1, presets_exhibit},
      {"draft", "A draft that guesses ahead", true, 80, 40, draft_exhibit},
      {"uptrain", "Heads pooled, and trained a little more", true, 150, 45, uptrain_exhibit},
  };
  // clang-format on
  return kKinds;
}

}  // namespace headroom::experiments
