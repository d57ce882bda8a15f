// headroom reproduce: every exhibit of the study in turn, each figure beside the published one.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/presets.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "configs/load.h"
#include "experiments/format.h"
#include "experiments/reproduce.h"
#include "tensor/check.h"

namespace headroom::cli {
namespace {

using experiments::Exhibit;

/// What is left of the sweep in a quick session: one seed, half the steps.
const std::vector<std::string> kQuickSweep = {"sweep.seeds=[1]", "train.steps=300",
                                              "train.eval_every=150", "train.save_every=150"};

struct ReproduceOptions {
  std::string folder = "runs/reproduce";
  std::string sweep;
  std::vector<std::string> only;
  bool quick = false;
};

/// Exhibits as they come. A sweep's runs are told by TrainingProgress, which also watches for
/// Ctrl-C.
class Progress : public experiments::ReproduceObserver {
 public:
  Progress(const Common& common, TrainingProgress& training) : line_(common), training_(training) {}
  void note(const std::string& sentence) override {
    line_.end();
    training_.note(sentence);
  }
  void exhibit_begins(const experiments::ExhibitPosition& at) override {
    prefix_ = fmt::format("{}/{} {}", at.index, at.count, at.id);
    line_.line(fmt::format("exhibit {} of {}: {} ({})", at.index, at.count, at.title, at.id));
    told_ = -1;
  }
  void exhibit_at(int64_t done, int64_t all, double seconds_left) override {
    const std::string text =
        fmt::format("{}  part {} of {}  {} left in all", prefix_, done, all, clock(seconds_left));
    const int64_t tenth = 10 * done / std::max<int64_t>(all, 1);
    if (line_.terminal()) {
      line_.live(text, fmt::format("{} {}", prefix_, clock(seconds_left)));
    } else if (tenth != told_) {
      line_.line(text);
    }
    told_ = tenth;
  }
  bool stop_requested() override { return line_.unread() || training_.stop_requested(); }

 private:
  LiveLine line_;
  TrainingProgress& training_;
  std::string prefix_;
  int64_t told_ = -1;
};

configs::Config preset_config(const std::string& name, const std::vector<std::string>& overrides) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) {
      return configs::parse_config(preset.yaml, fmt::format("preset {}", name), overrides, nullptr);
    }
  }
  throw Error(fmt::format("[reproduce] no preset {}", name));
}

std::vector<std::string> sweep_overrides(const ReproduceOptions& options, const Common& common) {
  std::vector<std::string> all = options.quick ? kQuickSweep : std::vector<std::string>();
  all.insert(all.end(), common.overrides.begin(), common.overrides.end());
  return all;
}

/// One line per figure, and under them what there is to say.
std::string to_text(const Exhibit& exhibit) {
  std::vector<Row> rows = {{"", "published", "here"}};
  std::string notes;
  for (const experiments::ExhibitRow& row : exhibit.rows) {
    rows.push_back({row.figure, published_text(row), ours_text(row)});
    const std::string note = note_text(row);
    notes += note.empty() ? "" : fmt::format("    {}: {}\n", row.figure, note);
  }
  std::string text = fmt::format("{} ({})\n", exhibit.title, exhibit.id);
  text += exhibit.setting.empty() ? "" : fmt::format("  {}\n", exhibit.setting);
  text += aligned(rows, 1, 2) + notes;
  if (exhibit.table.size() > 1) {
    text += "\n" + aligned(exhibit.table, 1, 2);
  }
  return text + (exhibit.why.empty() ? "" : fmt::format("  why they differ: {}\n", exhibit.why));
}

int report(const experiments::ReproduceOutcome& outcome, const std::filesystem::path& folder,
           const Common& common) {
  if (common.json) {
    print(experiments::reproduction_json(outcome.asked));
  } else {
    std::string text;
    for (const experiments::DoneExhibit& done : outcome.asked.exhibits) {
      text += (text.empty() ? "" : "\n") + to_text(done.exhibit);
    }
    print(text);
  }
  if (!outcome.warning.empty()) {
    note(common, outcome.warning);
  }
  for (const std::string& failure : outcome.failed) {
    complain(failure);
  }
  note(common, fmt::format("the report is {}", (folder / "report.html").string()));
  return outcome.failed.empty() ? 0 : 1;
}

/// The exhibits are about processors: their times, their memory, the plain attention they time
/// themselves against.
void require_cpu(const Common& common, const configs::Config& sweep) {
  check_input(!common.device || *common.device == kCpu,
              "--device is {}, but reproduce computes on the cpu alone: sweep, bench and analyze "
              "compute on a GPU too",
              common.device.value_or(kCpu));
  check_input(sweep.train.device == configs::DeviceKind::cpu,
              "train.device is {}, but reproduce computes on the cpu alone: train the sweep by "
              "itself, and give it as --sweep",
              configs::name_of(sweep.train.device));
}

int run_reproduce(const ReproduceOptions& options, const Common& common) {
  experiments::ReproduceOptions study;
  study.folder = options.folder;
  study.only = options.only;
  study.quick = options.quick;
  study.sweep = options.sweep;
  study.sweep_config = preset_config("gqa-quick", sweep_overrides(options, common));
  require_cpu(common, study.sweep_config);
  study.preset = [](const std::string& name) { return preset_config(name, {}); };
  experiments::ReproduceOutcome outcome;
  {
    TrainingProgress training(common);
    Progress progress(common, training);
    outcome = experiments::reproduce(study, progress, training);
  }
  if (outcome.interrupted) {
    complain(fmt::format("interrupted; what is done is in {}, and the same command goes on",
                         options.folder));
    return train::kInterrupted;
  }
  return report(outcome, options.folder, common);
}

}  // namespace

Action add_reproduce(CLI::App& app, Common& common) {
  const auto options = std::make_shared<ReproduceOptions>();
  app.add_option("--out", options->folder, "the study's folder; an interrupted study goes on in it")
      ->type_name("DIR")
      ->default_str(options->folder);
  app.add_flag("--quick", options->quick,
               "in ten minutes: one seed, small models, fewer repetitions, some totals estimated");
  app.add_option("--sweep", options->sweep,
                 "a finished sweep, for the exhibits about trained models [a finished one in DIR, "
                 "else one of configs/gqa-quick.yaml that is run in DIR/sweep]")
      ->type_name("DIR");
  add_repeated(app, "--only", options->only, "an exhibit to make, by its id; may be repeated [all]",
               "ID");
  std::string ids;
  for (const experiments::ExhibitKind& kind : experiments::exhibit_kinds()) {
    ids += fmt::format("\n  {:<18}{}", kind.id, kind.title);
  }
  set_footer(app,
             "  headroom reproduce --quick --out runs/study\n"
             "  headroom reproduce --only latency --only end-to-end\n"
             "  headroom reproduce --sweep runs/gqa\n\n"
             "Writes report.html and results.json into DIR after every exhibit; exhibits that DIR "
             "holds already,\nmade with the same settings, are read again. --set is for the sweep "
             "(data.corpus=FILE). Exhibits:" +
                 ids);
  return [options, &common] { return run_reproduce(*options, common); };
}

}  // namespace headroom::cli
