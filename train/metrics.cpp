// Writing metrics.jsonl, and cutting it back to where a run goes on.
#include "train/metrics.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "tensor/check.h"
#include "tensor/file.h"

namespace headroom::train {

Metrics::Metrics(std::filesystem::path path, int64_t step) : path_(std::move(path)) {
  std::string kept;
  if (step > 0 && std::filesystem::exists(path_)) {
    std::istringstream lines(read_file(path_));
    for (std::string text; std::getline(lines, text);) {
      const auto line = nlohmann::json::parse(text, nullptr, false);
      if (!line.is_object() || !line.contains("step") || line["step"] > step) {
        break;
      }
      kept += text + "\n";
      seconds_ = line.value("seconds", seconds_);
    }
  }
  write_file(path_, kept);
  file_.open(path_, std::ios::app | std::ios::binary);
  check(file_.is_open(), "{}: can't be written", path_.string());
}

void Metrics::write(const nlohmann::ordered_json& line) {
  file_ << line.dump() << '\n' << std::flush;
  check(file_.good(), "{}: can't be written: appending a line failed", path_.string());
}

}  // namespace headroom::train
