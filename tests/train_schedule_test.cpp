// TRN-01: first and last value of the learning-rate schedules, and the way between.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/check.h"

namespace headroom::train {

using configs::Schedule;

namespace {

configs::TrainConfig recipe(Schedule schedule, int64_t steps, int64_t warmup) {
  configs::TrainConfig train;
  train.schedule = schedule;
  train.steps = steps;
  train.warmup_steps = warmup;
  train.final_lr = 0.1;
  train.decay_fraction = 0.5;
  return train;
}

}  // namespace

class Schedules : public ::testing::TestWithParam<Schedule> {};

TEST_P(Schedules, RiseToThePeakAtOneStepAndFallToTheEnd) {
  for (const auto& [steps, warmup] : {std::pair<int64_t, int64_t>{100, 10},
                                      {100, 0},
                                      {100, 100},
                                      {100, 99},
                                      {2, 0},
                                      {2, 2},
                                      {7, 3}}) {
    const configs::TrainConfig train = recipe(GetParam(), steps, warmup);
    const bool falls = GetParam() != Schedule::constant;
    const int64_t peak = std::max<int64_t>(1, std::min(warmup, falls ? steps - 1 : steps));
    EXPECT_EQ(schedule_factor(train, peak), 1.0);
    for (int64_t step = 1; step <= steps; ++step) {
      const double factor = schedule_factor(train, step);
      EXPECT_GT(factor, 0) << step;
      EXPECT_LE(factor, 1) << step;
      if (step > 1 && step <= peak) {
        EXPECT_GT(factor, schedule_factor(train, step - 1)) << step;
      }
      if (step > peak) {
        EXPECT_LE(factor, schedule_factor(train, step - 1)) << step;
      }
    }
    EXPECT_EQ(schedule_factor(train, steps), falls ? 0.1 : 1.0) << steps << " " << warmup;
  }
}

TEST_P(Schedules, OfOneStepTakeThePeak) {
  EXPECT_EQ(schedule_factor(recipe(GetParam(), 1, 0), 1), 1.0);
  EXPECT_EQ(schedule_factor(recipe(GetParam(), 1, 1), 1), 1.0);
}

TEST_P(Schedules, RefuseStepsOutsideTheRun) {
  EXPECT_THROW(schedule_factor(recipe(GetParam(), 10, 0), 0), Error);
  EXPECT_THROW(schedule_factor(recipe(GetParam(), 10, 0), 11), Error);
}

INSTANTIATE_TEST_SUITE_P(All, Schedules,
                         ::testing::Values(Schedule::cosine, Schedule::linear, Schedule::constant,
                                           Schedule::wsd),
                         [](const auto& each) { return std::string(name_of(each.param)); });

TEST(Schedule, ValuesByHand) {
  EXPECT_DOUBLE_EQ(schedule_factor(recipe(Schedule::cosine, 100, 10), 1), 0.1);
  EXPECT_DOUBLE_EQ(schedule_factor(recipe(Schedule::cosine, 100, 10), 55), 0.1 + 0.9 * 0.5);
  EXPECT_DOUBLE_EQ(schedule_factor(recipe(Schedule::cosine, 100, 10), 40),
                   0.1 + 0.9 * (1 + std::cos(M_PI / 3)) / 2);
  EXPECT_DOUBLE_EQ(schedule_factor(recipe(Schedule::linear, 100, 10), 40), 0.1 + 0.9 * 2 / 3);
  EXPECT_DOUBLE_EQ(schedule_factor(recipe(Schedule::wsd, 100, 10), 50), 1);
  EXPECT_DOUBLE_EQ(schedule_factor(recipe(Schedule::wsd, 100, 10), 75), 0.1 + 0.9 / 2);
  configs::TrainConfig late = recipe(Schedule::wsd, 100, 80);  // decay would begin inside warm-up
  EXPECT_DOUBLE_EQ(schedule_factor(late, 90), 0.1 + 0.9 / 2);
}

}  // namespace headroom::train
