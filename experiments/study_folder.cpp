// Looking for a finished sweep, and refusing to write over one.
#include "experiments/study_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "tensor/check.h"
#include "tensor/file.h"
#include "train/run_folder.h"

namespace headroom::experiments {

namespace fs = std::filesystem;

namespace {

constexpr const char* kExhibits = "exhibits";
constexpr const char* kSweep = "sweep";
constexpr const char* kQuickSweep = "sweep-quick";

}  // namespace

void open_study_folder(const fs::path& folder) {
  std::error_code error;
  check_input(!fs::exists(folder, error) || fs::is_directory(folder, error),
              "{}: can't be the study's folder: it is not a directory", folder.string());
  check_input(!fs::exists(folder / train::kConfigFile, error),
              "{}: holds a run or a sweep, which reproduce would write over: give another --out, "
              "and a finished sweep as --sweep",
              folder.string());
  fs::create_directories(folder / kExhibits, error);
  check(!error, "{}: can't be made: {}", folder.string(), error.message());
}

fs::path exhibit_file(const fs::path& folder, const char* id) {
  return folder / kExhibits / fmt::format("{}.json", id);
}

bool is_finished_sweep(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / kStudyResults, ignored) ||
      !fs::is_regular_file(folder / train::kConfigFile, ignored)) {
    return false;
  }
  const auto json = nlohmann::json::parse(read_file(folder / kStudyResults), nullptr, false);
  const auto finished = json.is_object() ? json.find("finished") : json.end();
  return finished != json.end() && finished->is_boolean() && finished->get<bool>();
}

fs::path own_sweep(const fs::path& folder, bool quick) {
  return folder / (quick ? kQuickSweep : kSweep);
}

fs::path find_sweep(const fs::path& folder, bool quick) {
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const bool reduced = entry.path().filename() == kQuickSweep;
    if (entry.is_directory(ignored) && (quick || !reduced) && is_finished_sweep(entry.path())) {
      found.push_back(entry.path());
    }
  }
  std::ranges::sort(found, {}, [](const fs::path& path) {
    return std::pair(path.filename() != kSweep, path.filename().string());
  });
  return found.empty() ? fs::path() : found.front();
}

}  // namespace headroom::experiments
