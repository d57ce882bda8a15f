// The exhibits in the order in which they are reported.
#include "experiments/exhibit.h"

namespace headroom::experiments {

const std::vector<ExhibitKind>& exhibit_kinds() {
  static const std::vector<ExhibitKind> kKinds = {};
  return kKinds;
}

}  // namespace headroom::experiments
