// The folder of a study: what may lie in it, and the sweep that its trained models come from.
#pragma once

#include <filesystem>

namespace headroom::experiments {

inline constexpr const char* kStudyResults = "results.json";
inline constexpr const char* kStudyReport = "report.html";

/// Makes the folder and its places for exhibits. Throws InputError for what is no folder, and for
/// one whose results.json and report.html are a run's or a sweep's.
void open_study_folder(const std::filesystem::path& folder);

/// The file of an exhibit that is done.
std::filesystem::path exhibit_file(const std::filesystem::path& folder, const char* id);

bool is_finished_sweep(const std::filesystem::path& folder);

/// Where a study trains a sweep if it has none.
std::filesystem::path own_sweep(const std::filesystem::path& folder, bool quick);

/// The finished sweep that lies in `folder`: own_sweep(), else the first by name; empty when there
/// is none. What a quick study trained serves quick ones only.
std::filesystem::path find_sweep(const std::filesystem::path& folder, bool quick);

}  // namespace headroom::experiments
