// The whole study in one go: every exhibit in order, each a file of its own, so that an interrupted
// session goes on where it stopped; results.json and report.html are rewritten after each.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/exhibit_file.h"
#include "experiments/sweep.h"

namespace headroom::experiments {

struct ReproduceOptions {
  std::filesystem::path folder;  // made where absent
  std::vector<ExhibitKind> kinds = exhibit_kinds();
  std::vector<std::string> only;  // ids of those to make; none: all
  bool quick = false;
  std::filesystem::path sweep;   // a finished sweep's folder; empty: one in `folder`, else trained
  configs::Config sweep_config;  // what is trained then, in folder / "sweep" or "sweep-quick"
  std::function<configs::Config(const std::string& preset)> preset;
};

/// Which exhibit of how many is about to be made.
struct ExhibitPosition {
  int64_t index = 0;  // from 1
  int64_t count = 0;
  std::string id, title;
};

/// Is told of the exhibits. The sweep, where one is trained, tells its own observer.
class ReproduceObserver {
 public:
  virtual ~ReproduceObserver() = default;
  virtual void note(const std::string& /*sentence*/) {}
  virtual void exhibit_begins(const ExhibitPosition&) {}
  /// Parts of the exhibit that are done, and the seconds all the exhibits will still take.
  virtual void exhibit_at(int64_t /*done*/, int64_t /*all*/, double /*seconds_left*/) {}
  virtual bool stop_requested() { return false; }
};

struct ReproduceOutcome {
  Reproduction asked;               // the exhibits asked for, in order
  std::vector<std::string> failed;  // what went wrong, one sentence for each exhibit
  std::string warning;              // why charts couldn't be drawn; empty: they were
  bool interrupted = false;
};

/// Makes the exhibits asked for that folder / "exhibits" doesn't hold yet with these settings, and
/// reports on all that it then holds. An exhibit that fails gets a row that says why, is made again
/// next time, and the others go on. Throws InputError before the first one for an unknown id, a
/// folder that holds something else, a sweep that is none or unfinished, and a sweep that can't be
/// trained.
ReproduceOutcome reproduce(const ReproduceOptions& options, ReproduceObserver& observer,
                           SweepObserver& sweep_observer);

}  // namespace headroom::experiments
