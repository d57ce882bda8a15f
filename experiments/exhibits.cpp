// The exhibits in the order in which they are reported.
#include "experiments/exhibits.h"

namespace headroom::experiments {

const std::vector<ExhibitKind>& exhibit_kinds() {
  // clang-format off
  // id, title, whether it reads the sweep, usual seconds and those of a quick session, function
  static const std::vector<ExhibitKind> kKinds = {
      {"kv-head-table", "Parameters, cache and loss by n_kv_head", true, 1, 1, kv_head_table_exhibit},
      {"cache-quality", "What fewer KV heads cost", true, 1, 1, cache_quality_exhibit},
      {"low-rank", "Keys and values of low rank", true, 60, 10, low_rank_exhibit},
      {"sink-mass", "Attention mass on token 0", true, 3, 2, sink_mass_exhibit},
      {"learned-sink", "Attention mass on learned sinks", true, 120, 60, learned_sink_exhibit},
      {"window-sinks", "Windows with and without sinks", true, 10, 3, window_sinks_exhibit},
      {"kv-bits", "Fewer bits, by n_kv_head", true, 120, 20, kv_bits_exhibit},
  };
  // clang-format on
  return kKinds;
}

}  // namespace headroom::experiments
