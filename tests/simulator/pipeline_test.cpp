#include "simulator/pipeline.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"

namespace simulator {
namespace {

// The published formulas come from other hands than the lists of ops that are run here: where both agree, both are right.
TEST(Pipeline, RunningASchedule_GivesItsPublishedBubble) {
  for (const PipelineTimes& times :
       {PipelineTimes{1, 2, 1, 3}, PipelineTimes{1, 2, 1, 2.2}, PipelineTimes{3, 6, 3, 8}}) {
    for (const PipelineSchedule schedule :
         {PipelineSchedule::kForward, PipelineSchedule::k1F1B, PipelineSchedule::kZb1P, PipelineSchedule::kDualPipe}) {
      for (const int64_t stages : {2, 4, 8, 16}) {
        for (const int64_t batches : {2 * stages, 3 * stages, 6 * stages}) {
          EXPECT_NEAR(
              run_pipeline(schedule, stages, batches, times).bubble(), bubble_formula(schedule, stages, times), 1e-9)
              << schedule_name(schedule) << " P" << stages << " M" << batches << " F&B " << times.both;
        }
      }
    }
  }
}

TEST(Pipeline, NothingIsDoneTwiceOrLeftOut) {
  const PipelineTimes times{1.3, 2.1, 0.7, 2.9};
  for (const PipelineSchedule schedule : {PipelineSchedule::k1F1B, PipelineSchedule::kZb1P}) {
    for (const double busy : run_pipeline(schedule, 8, 24, times).busy) {
      EXPECT_NEAR(busy, 24 * (1.3 + 2.1), 1e-9);
    }
  }
  // Without a gain from overlapping, DualPipe's ranks have as much to do.
  const PipelineTimes plain{1.3, 2.1, 0.7, 3.4};
  for (const double busy : run_pipeline(PipelineSchedule::kDualPipe, 8, 24, plain).busy) {
    EXPECT_NEAR(busy, 24 * (1.3 + 2.1), 1e-9);
  }
}

TEST(Pipeline, ImpossibleNumbersAreRefused) {
  EXPECT_THROW(check_pipeline(PipelineSchedule::k1F1B, 0, 4), model::InputError);
  EXPECT_THROW(check_pipeline(PipelineSchedule::kDualPipe, 3, 12), model::InputError);
  EXPECT_THROW(check_pipeline(PipelineSchedule::kDualPipe, 8, 10), model::InputError);
}

}  // namespace
}  // namespace simulator
