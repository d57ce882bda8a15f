// What a library has to find out before it can compute a problem, which takes longer than many
// problems do.
#pragma once

#include <cstddef>
#include <map>

namespace headroom::kernels::cuda {

/// The plans of up to `kMost` problems: several times what training a model uses. One more starts
/// over, so that problems which never return don't fill the memory.
template <class Problem, class Plan, size_t kMost>
class PlanCache {
 public:
  /// The problem's plan, made by make(problem) the first time.
  template <class Make>
  const Plan& find(const Problem& problem, const Make& make) {
    auto it = plans_.find(problem);
    if (it == plans_.end()) {
      if (plans_.size() == kMost) {
        plans_.clear();
      }
      it = plans_.emplace(problem, make(problem)).first;
    }
    return it->second;
  }

 private:
  std::map<Problem, Plan> plans_;
};

}  // namespace headroom::kernels::cuda
