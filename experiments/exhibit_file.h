// An exhibit's result as a file, and the figures of many as results.json.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/exhibit.h"
#include "experiments/result.h"

namespace headroom::experiments {

/// An exhibit that is done.
struct DoneExhibit {
  Exhibit exhibit;
  std::string settings;  // what it was made with, in words: other settings, another result
  double seconds = 0;    // that it took
};

/// Writes it whole or not at all.
void write_exhibit(const std::filesystem::path& file, const DoneExhibit& done);

/// Throws InputError naming the file when it is no exhibit's.
DoneExhibit read_exhibit(const std::filesystem::path& file);

/// What `headroom reproduce` has found so far.
struct Reproduction {
  std::vector<DoneExhibit> exhibits;  // in the report's order
  int64_t planned = 0;                // exhibits there are to be
  bool finished = false;              // all of them are there, and none failed
  bool quick = false;
  std::string sweep;       // folder that the trained models come from; empty: none was needed
  bool own_sweep = false;  // it was run for this study
  Machine machine;
};

/// {"rows": [{"exhibit", "figure", "published", "ours", "unit", "note"}], "exhibits": [{"id",
/// "title", "setting", "why", "table", "seconds"}], "quick", "sweep", "machine", "finished"}. A
/// published range is [low, high]; a figure that was not published or not measured is null.
std::string reproduction_json(const Reproduction& all);

/// "1,024", "9.84", "3.57e10": four digits, and more only for whole numbers below ten million.
std::string format_figure(double value);
/// A row's figures with their unit: "9.84 ms", "10 to 20", "–"; "not measured".
std::string published_text(const ExhibitRow& row);
std::string ours_text(const ExhibitRow& row);
/// The note; "not measured: ..." where there is no figure.
std::string note_text(const ExhibitRow& row);

}  // namespace headroom::experiments
