// One exhibit of the study: figures that were published beside those measured here, a table, a
// picture, and what explains a difference. `headroom reproduce` runs them all, on the CPU, wherever
// the models were trained: that is what their times and memory are of.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/config.h"

namespace headroom::experiments {

/// A figure. `note` is about this figure alone; where `ours` is absent it says why, and is shown as
/// "not measured: NOTE".
struct ExhibitRow {
  std::string figure = {};                  // what it is: "naive step at context 512"
  std::optional<double> published = {};     // absent: nothing was published
  std::optional<double> published_to = {};  // the other end, where a range was published
  std::optional<double> ours = {};
  std::string unit = {};  // "ms", "bytes", "nats/token"; empty: a plain number
  std::string note = {};

  bool operator==(const ExhibitRow&) const = default;
};

inline ExhibitRow exhibit_row(std::string figure, std::optional<double> published,
                              std::optional<double> ours, std::string unit = {},
                              std::string note = {}) {
  return {.figure = std::move(figure),
          .published = published,
          .published_to = {},
          .ours = ours,
          .unit = std::move(unit),
          .note = std::move(note)};
}

struct Exhibit {
  std::string id, title;
  std::string setting;  // what was measured, on which model, how often: a sentence or two
  std::vector<ExhibitRow> rows;
  /// More than the rows show, headings first; the first column is words, the others numbers. Empty:
  /// the rows say it all.
  std::vector<std::vector<std::string>> table;
  /// A gnuplot script that writes one SVG to stdout (line_chart.h makes most); empty: no picture.
  std::string chart;
  std::vector<std::string> legend;  // its series, in the order of chart_look(); empty: one series
  std::string caption;              // under the chart
  std::string why;                  // what explains the differences from what was published

  bool operator==(const Exhibit&) const = default;
};

/// Thrown through an exhibit when the user asks to stop.
class Interrupted : public std::exception {};

/// What every exhibit is given.
struct Study {
  bool quick = false;            // one seed and small models: all of it in 10 minutes
  std::filesystem::path folder;  // an exhibit that trains keeps its runs in folder / ID
  std::filesystem::path sweep;   // a finished sweep: results.json, runs in it as kv4-seed1
  /// The config of a preset: "gpt-124m".
  std::function<configs::Config(const std::string& name)> preset;
  /// Called between the parts of an exhibit, which take about equally long; throws Interrupted when
  /// the user asks to stop.
  std::function<void(int64_t done, int64_t all)> progress;
  /// Whether the user asks to stop, for a train::Observer; the exhibit then throws Interrupted.
  std::function<bool()> stop_requested;
};

/// An exhibit that can be made.
struct ExhibitKind {
  const char* id;
  const char* title;
  bool uses_sweep;                // reads Study::sweep
  double seconds, quick_seconds;  // about what it takes on two cores, for the time left
  Exhibit (*make)(const Study&);  // fills all but id and title
};

/// All of them, in the order of the report.
const std::vector<ExhibitKind>& exhibit_kinds();

}  // namespace headroom::experiments
