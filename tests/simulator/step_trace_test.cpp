#include "simulator/step_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/check.hpp"
#include "simulator/deployment.hpp"

namespace simulator {
namespace {

struct Traced {
  Serving serving;
  double sampled_moe_us = 0;  // of the one step that is drawn
  model::ChromeTrace trace;
};

Traced traced(const DeploymentRequest& request, const std::vector<int64_t>& ranks) {
  const Deployment deployment = build_deployment(request);
  const auto fits = choose_fits(built_in_calibrations(), deployment.hardware);
  MoeCurves curves;
  Traced result{.serving = serve(deployment, fits, curves), .sampled_moe_us = 0, .trace = {}};
  const StepModel model(
      deployment.config, deployment.hardware, fits, deployment.engine, deployment.decode.rank, curves);
  const DecodePoint point{result.serving.decode_sequences, deployment.workload.mean_kv_len()};
  result.sampled_moe_us = model.sampled_moe(point, 1).front().total_us() * deployment.engine.stream_factor;
  result.trace = step_trace(deployment, fits, curves, result.serving, ranks);
  return result;
}

double end_us(const model::ChromeTrace& trace, int64_t process) {
  double end = 0;
  for (const model::TraceSpan& span : trace.spans) {
    end = span.process == process ? std::max(end, span.start_us + span.duration_us) : end;
  }
  return end;
}

TEST(StepTrace, EveryRankEndsWithTheStep) {
  const Traced run = traced(
      {.gpu = "h100", .batch = 64, .redundant_experts = 32, .decode_only = true, .layout = parse_shorthand("dep72")},
      {0, 17, 71});
  ASSERT_EQ(run.trace.processes.size(), 3U);
  EXPECT_EQ(run.trace.processes[2].name, "rank 71");
  // The step, with the sampled MoE layers in place of the mean ones.
  double expected_us = run.sampled_moe_us;
  double mean_moe_us = 0;
  for (const StepLeaf& leaf : run.serving.step.leaves) {
    const bool is_sampled = leaf.part == StepPart::kExperts || leaf.part == StepPart::kExpertsFixed ||
                            leaf.part == StepPart::kDispatch || leaf.part == StepPart::kCombine ||
                            leaf.part == StepPart::kWaiting;
    (is_sampled ? mean_moe_us : expected_us) += leaf.total_us();
    if (leaf.part == StepPart::kInStream) {
      expected_us -= leaf.total_us();  // added below: the trace stretches the kernels themselves
    }
  }
  const double stream_factor = load_engine("sglang").stream_factor;
  const double host_us = load_engine("sglang").host_us;
  const double kernels_us = expected_us - run.sampled_moe_us - host_us;
  expected_us += (stream_factor - 1) * kernels_us;
  for (int64_t process = 0; process < 3; ++process) {
    EXPECT_NEAR(end_us(run.trace, process), expected_us, 1e-9 * expected_us) << process;
  }
  // One step's sample beside the mean of 24 sampled layers, which is itself known to about 2 % (moe_curve.cpp).
  EXPECT_NEAR(expected_us, run.serving.step.total_us, 0.05 * expected_us);
}

TEST(StepTrace, NothingOverlapsOnALane) {
  for (const char* preset : {"h100-ep72-decode", "h800-ep144-decode", "h200-tp8"}) {
    Traced run = traced({.preset = preset}, {0, 1});
    std::ranges::sort(run.trace.spans, {}, &model::TraceSpan::start_us);
    std::map<std::pair<int64_t, int64_t>, double> free_at;
    for (const model::TraceSpan& span : run.trace.spans) {
      double& free = free_at[{span.process, span.lane}];
      EXPECT_GE(span.start_us, free * (1 - 1e-12)) << preset << " " << span.name;
      free = span.start_us + span.duration_us;
    }
  }
}

// Two halves that take turns are done sooner than one after the other, and no sooner than the longer lane allows.
TEST(StepTrace, HalvesHideTheirExchange) {
  const DeploymentRequest one{.preset = "h800-ep144-decode"};
  const Deployment deployment = build_deployment(one);
  ASSERT_TRUE(deployment.decode.rank.two_batch_overlap);
  const Traced run = traced(one, {3});
  std::map<int64_t, double> busy_us;
  double all_us = 0;
  for (const model::TraceSpan& span : run.trace.spans) {
    busy_us[span.lane] += span.duration_us;
    all_us += span.duration_us;
  }
  const double end = end_us(run.trace, 0);
  EXPECT_LT(end, 0.9 * all_us);
  for (const auto& [lane, busy] : busy_us) {
    EXPECT_GE(end, busy * (1 - 1e-12)) << lane;
  }
}

TEST(StepTrace, ARankThatIsNotThereIsRefused) {
  EXPECT_THROW(traced({.preset = "h200-tp8"}, {8}), model::InputError);
  EXPECT_THROW(traced({.preset = "h200-tp8"}, {-1}), model::InputError);
}

}  // namespace
}  // namespace simulator
