// Where attention looks when it has nothing to look for: the mass on a sequence's first token
// (attention sinks, arXiv 2309.17453), and on a learned sink logit where the model has one.
#pragma once

#include <vector>

#include "experiments/passages.h"

namespace headroom::experiments {

/// One number per layer and query head.
using HeadMap = std::vector<std::vector<double>>;

struct SinkMass {
  /// Mean, over the queries at positions 1 to T - 1 of all passages, of exp(score - lse) of the key
  /// at position 0. The query at 0 sees no other key and is left out. A layer's window hides key 0
  /// from late queries: their mass on it is 0.
  HeadMap first;
  /// The same of exp(sink logit - lse); empty for a model without learned sinks.
  HeadMap learned;
  /// What `first` would be if every query spread its mass evenly over the keys it sees: by layer,
  /// the mean over the same queries of 1 / (keys seen), 0 where key 0 is none of them.
  std::vector<double> uniform;
};

SinkMass sink_mass(const nn::GPT& model, const Passages& passages, const PartDone& part_done);

/// Smallest, largest and mean of all heads.
struct Spread {
  double low = 0, high = 0, mean = 0;
};
Spread spread_of(const HeadMap& map);

}  // namespace headroom::experiments
