// A study for tests: exhibits that take no time, an observer that remembers, and presets so small
// that the real exhibits run on them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "experiments/reproduce.h"
#include "sweep_run.h"

namespace headroom::testing {

/// The presets' shapes at a size that runs in milliseconds. Learned positions, which end at 64
/// tokens, are those of "gpt2" only.
inline configs::Config tiny_preset(const std::string& name) {
  configs::Config config;
  configs::ModelConfig& m = config.model;
  m.n_layer = 2;
  m.n_head = m.n_kv_head = 6;
  m.n_embd = 24;
  m.given_n_ff = 32;
  m.block_size = 128;
  m.vocab_size = 40;
  if (name == "gpt2") m.position = configs::Position::learned;
  return config;
}

inline experiments::Study tiny_study(bool quick = true) {
  return {.quick = quick,
          .folder = {},
          .sweep = {},
          .preset = tiny_preset,
          .progress = [](int64_t, int64_t) {},
          .stop_requested = [] { return false; }};
}

inline const experiments::ExhibitRow& row_of(const experiments::Exhibit& exhibit,
                                             const std::string& figure) {
  static const experiments::ExhibitRow none;
  for (const experiments::ExhibitRow& row : exhibit.rows) {
    if (row.figure == figure) return row;
  }
  ADD_FAILURE() << "no figure " << figure;
  return none;
}

/// What a reader needs of every exhibit: figures that were measured, with what was done; a picture;
/// tables whose rows are as long as their head; a legend wherever there are several series.
inline void expect_complete(const experiments::Exhibit& exhibit) {
  EXPECT_FALSE(exhibit.setting.empty());
  EXPECT_FALSE(exhibit.why.empty());
  EXPECT_FALSE(exhibit.chart.empty());
  EXPECT_FALSE(exhibit.caption.empty());
  EXPECT_FALSE(exhibit.rows.empty());
  EXPECT_NE(exhibit.legend.size(), 1u);
  for (const experiments::ExhibitRow& row : exhibit.rows) {
    EXPECT_TRUE(row.ours) << row.figure;
    EXPECT_FALSE(row.figure.empty());
  }
  ASSERT_GT(exhibit.table.size(), 1u);
  for (const auto& line : exhibit.table) EXPECT_EQ(line.size(), exhibit.table.front().size());
}

/// Remembers what it is told, and asks to stop where it is asked to.
struct StudyRecorder : experiments::ReproduceObserver {
  std::vector<std::string> notes, begun;
  std::vector<double> seconds_left;
  std::string stop_in = "nothing";  // id of the exhibit

  void note(const std::string& sentence) override { notes.push_back(sentence); }
  void exhibit_begins(const experiments::ExhibitPosition& at) override { begun.push_back(at.id); }
  void exhibit_at(int64_t, int64_t, double seconds) override { seconds_left.push_back(seconds); }
  bool stop_requested() override { return !begun.empty() && begun.back() == stop_in; }

  bool noted(const std::string& part) const {
    for (const std::string& sentence : notes) {
      if (holds(sentence, part)) return true;
    }
    return false;
  }
};

}  // namespace headroom::testing
