// Means, deviations and paired differences against figures computed with SciPy 1.x.
#include "experiments/statistics.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "experiments/summary.h"
#include "experiments_example_sweep.h"
#include "tensor/check.h"

namespace headroom::experiments {
namespace {

const std::array<double, 5> kOurs{1.488, 1.512, 1.474, 1.501, 1.4955};
const std::array<double, 5> kTheirs{1.479, 1.5151, 1.468, 1.4947, 1.4902};

TEST(Statistics, MeanAndDeviationDivideByNAndNMinusOne) {
  EXPECT_NEAR(mean(kOurs), 1.4941, 1e-12);
  EXPECT_NEAR(*sd(kOurs), 0.014240786495134319, 1e-12);
  EXPECT_TRUE(std::isnan(mean({})));
  EXPECT_FALSE(sd(std::span(kOurs).first(1)).has_value());
}

TEST(Statistics, PairedDifferenceIsThatOfStudentsTest) {
  const PairedDifference d = paired_difference(kOurs, kTheirs);
  EXPECT_EQ(d.n, 5);
  EXPECT_NEAR(d.mean, 0.0047, 1e-12);
  EXPECT_NEAR(*d.sd, 0.004580938768418469, 1e-12);
  EXPECT_NEAR(*d.ci95, 0.005687986746721103, 1e-10);
  EXPECT_NEAR(*d.p, 0.08347152614639183, 1e-9);
}

TEST(Statistics, OneSeedHasNoInterval) {
  const PairedDifference d =
      paired_difference(std::span(kOurs).first(1), std::span(kTheirs).first(1));
  EXPECT_NEAR(d.mean, 0.009, 1e-12);
  EXPECT_FALSE(d.sd || d.ci95 || d.p);
}

TEST(Statistics, EqualDifferencesAreCertain) {
  const std::array<double, 2> zero{0, 0};
  const std::array<double, 2> one{1, 1};
  EXPECT_EQ(*paired_difference(one, one).p, 1);
  EXPECT_EQ(*paired_difference(one, zero).p, 0);
  EXPECT_EQ(*paired_difference(one, zero).ci95, 0);
}

TEST(Statistics, UnequalLengthsAreRefused) {
  EXPECT_THROW(paired_difference(kOurs, std::span(kTheirs).first(2)), Error);
}

TEST(Statistics, HalfWidthUsesTheQuantileOfNMinusOne) {
  EXPECT_NEAR(ci95_half_width(1, 2), 8.984643532093752, 1e-8);
  EXPECT_NEAR(ci95_half_width(1, 3), 2.4841377117503303, 1e-9);
  EXPECT_NEAR(ci95_half_width(1, 30), 0.3734061367580999, 1e-9);
  EXPECT_THROW(ci95_half_width(1, 1), Error);
}

TEST(Statistics, SeedsToResolveIsTheSmallestThatDo) {
  EXPECT_EQ(seeds_to_resolve(0.005, 0), 2);
  EXPECT_EQ(seeds_to_resolve(0.005, 0.0004), 2);
  EXPECT_EQ(seeds_to_resolve(0.005, 0.001), 3);
  EXPECT_EQ(seeds_to_resolve(0.005, 0.004), 5);
  EXPECT_EQ(seeds_to_resolve(0.005, 0.02), 64);
  EXPECT_EQ(seeds_to_resolve(0.005, 0.1), 1540);
}

TEST(Summary, VerdictsFollowTheIntervals) {
  const Summary summary = summarize(example_sweep());
  EXPECT_EQ(summary.rows[0].sentence, "reference");
  EXPECT_EQ(summary.rows[1].sentence, "no difference resolved at 3 seeds");
  EXPECT_EQ(summary.rows[3].sentence, "worse by 0.013 ± 0.001");
  EXPECT_NEAR(summary.rows[1].delta->mean, 0.0011333333, 1e-9);
  EXPECT_NEAR(*summary.rows[1].delta->p, 0.13416182471, 1e-9);
  EXPECT_NEAR(*summary.rows[3].delta->ci95, 0.00074524131, 1e-9);
  EXPECT_EQ(summary.runs_done, 12);
  EXPECT_EQ(summary.runs_planned, 12);
}

TEST(Summary, BetterIsSaidWithoutASign) {
  Sweep sweep = example_sweep();
  for (SeedRun& run : sweep.rows[3].runs) run.best_loss -= 0.1;
  EXPECT_EQ(summarize(sweep).rows[3].sentence, "better by 0.087 ± 0.001");
}

TEST(Summary, ResolvableDifferenceIsTheWidestInterval) {
  // The differences of n_kv_head 2 are 0.0018, -0.0009, 0.0045: sd 0.0027.
  const Summary summary = summarize(example_sweep());
  EXPECT_NEAR(*summary.resolvable, 2.4841377117503303 * 0.0027, 1e-9);
  EXPECT_EQ(*summary.seeds_for_goal, 4);
}

TEST(Summary, PairsBySeedNotByPosition) {
  Sweep sweep = example_sweep();
  std::swap(sweep.rows[3].runs[0], sweep.rows[3].runs[2]);
  EXPECT_NEAR(*summarize(sweep).rows[3].delta->sd, 0.0003, 1e-9);
  sweep.rows[3].runs.erase(sweep.rows[3].runs.begin());
  EXPECT_EQ(summarize(sweep).rows[3].delta->n, 2);
}

TEST(Summary, OneSeedGivesNoVerdict) {
  const Summary summary = summarize(one_seed_sweep());
  EXPECT_EQ(summary.rows[0].sentence, "reference");
  EXPECT_EQ(summary.rows[1].sentence, "one seed: no verdict");
  EXPECT_FALSE(summary.rows[1].best.sd || summary.resolvable || summary.seeds_for_goal);
}

TEST(Summary, MissingRunsAndDivergedRunsAreSaid) {
  const Summary unfinished = summarize(unfinished_sweep());
  EXPECT_EQ(unfinished.rows[1].sentence, "no difference resolved at 2 seeds");
  EXPECT_EQ(unfinished.rows[2].sentence, "not trained yet");
  EXPECT_EQ(unfinished.runs_done, 5);
  Sweep sweep = example_sweep();
  sweep.rows[1].runs[1].best_loss = NAN;
  EXPECT_EQ(summarize(sweep).rows[1].sentence, "a run diverged: no verdict");
  sweep.rows.erase(sweep.rows.begin());
  EXPECT_EQ(summarize(sweep).rows[1].sentence, "no MHA run: no verdict");
}

TEST(Summary, PublishedFiguresStandOnlyBesideTinyShakespeareAtTheSameShape) {
  Sweep sweep = example_sweep();
  const Summary summary = summarize(sweep);
  EXPECT_EQ(*summary.rows[0].published, 1.53);
  EXPECT_EQ(*summary.rows[1].published, 1.53);
  EXPECT_EQ(*summary.rows[2].published, 1.50);
  EXPECT_EQ(*summary.rows[3].published, 1.51);
  sweep.fair = "same-cache";
  EXPECT_FALSE(summarize(sweep).rows[0].published.has_value());
  sweep.fair = "same-shape";
  sweep.tiny_shakespeare = false;
  EXPECT_FALSE(summarize(sweep).rows[0].published.has_value());
}

}  // namespace
}  // namespace headroom::experiments
