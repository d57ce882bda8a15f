// metrics.jsonl: what a run measured, one JSON object per line.
//   {"step", "loss", "lr", "grad_norm", "tokens", "pass", "seconds"}          after each step
//   {"step", "val_loss", "bits_per_byte", "best", "seconds"}                  after each evaluation
// loss and val_loss are in nats per token, lr is the rate of train.lr's schedule, tokens counts
// those trained on since step 1, seconds the time spent since then, resumed parts included. All but
// seconds are the same for equal runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>

namespace headroom::train {

class Metrics {
 public:
  /// Opens the file for a run that stands at step `step`: later lines, and a line that a killed run
  /// left unfinished, are cut off. At step 0 the file starts anew.
  Metrics(std::filesystem::path path, int64_t step);

  /// The last kept line's "seconds"; 0 without one.
  double seconds() const { return seconds_; }
  /// Appends a line and hands it to the system at once. Throws Error when that fails.
  void write(const nlohmann::ordered_json& line);

 private:
  std::filesystem::path path_;
  double seconds_ = 0;
  std::ofstream file_;
};

}  // namespace headroom::train
