// A step as op records: nothing is lost on the way from modules to ops.
#include "simulator/step_records.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "simulator/deployment.hpp"
#include "simulator/floor.hpp"
#include "simulator/layout.hpp"
#include "simulator/walk.hpp"

namespace simulator {
namespace {

double sum_us(const model::OpRecordFile& file, model::RecordSource source) {
  return std::accumulate(file.records.begin(), file.records.end(), 0.0, [&](double sum, const auto& record) {
    return sum + (record.source == source ? record.time_us : 0);
  });
}

Deployment deployment(const std::string& layout, double sequences, std::vector<double> acceptance = {}) {
  return build_deployment({.gpu = "h200",
                           .prompt_tokens = 1000,
                           .answer_tokens = 200,
                           .batch = sequences,
                           .acceptance = std::move(acceptance),
                           .decode_only = true,
                           .layout = parse_shorthand(layout)});
}

class StepRecords : public ::testing::TestWithParam<std::string> {};

TEST_P(StepRecords, SimulatedRowsAddUpToTheStep) {
  const Deployment asked = deployment(GetParam(), 8);
  const auto fits = choose_fits(built_in_calibrations(), asked.hardware);
  MoeCurves curves;
  const auto file = step_records(asked, fits, curves, "abc");
  const StepModel step_model(asked.config, asked.hardware, fits, asked.engine, asked.decode.rank, curves);
  const double pp = static_cast<double>(asked.decode.rank.layout.pp);
  const StepCost cost = step_model.decode({.sequences = 8 / pp, .kv_len = 1100});
  EXPECT_NEAR(sum_us(file, model::RecordSource::kSimulated), cost.total_us, 1e-9 * cost.total_us);
}

INSTANTIATE_TEST_SUITE_P(Layouts, StepRecords, ::testing::Values("tp8", "tp8pp2", "dep16", "tep8"));

// More ranks than experts: the V3 report's decode, one slot a GPU, the shared expert a routed one.
TEST(StepRecordsOfManyRanks, AddUp) {
  const Deployment asked = build_deployment({.preset = "h800-ep320-decode", .batch = 32});
  const auto fits = choose_fits(built_in_calibrations(), asked.hardware);
  MoeCurves curves;
  const auto file = step_records(asked, fits, curves, "abc");
  const StepModel step_model(asked.config, asked.hardware, fits, asked.engine, asked.decode.rank, curves);
  // The records' context is a whole number of tokens.
  const double kv_len = std::round(asked.workload.mean_kv_len());
  const StepCost cost = step_model.decode({.sequences = 32, .kv_len = kv_len});
  EXPECT_NEAR(sum_us(file, model::RecordSource::kSimulated), cost.total_us, 1e-9 * cost.total_us);
}

// All of the exchange hides behind the other half of this batch: its rows are there, and take nothing.
TEST(StepRecordsOfOverlap, AddUpWithoutWhatIsHidden) {
  Deployment asked = deployment("dep16", 64);
  asked.decode.rank.two_batch_overlap = true;
  const auto fits = choose_fits(built_in_calibrations(), asked.hardware);
  MoeCurves curves;
  const auto file = step_records(asked, fits, curves, "abc");
  const StepModel step_model(asked.config, asked.hardware, fits, asked.engine, asked.decode.rank, curves);
  const StepCost cost = step_model.decode({.sequences = 64, .kv_len = 1100});
  EXPECT_NEAR(sum_us(file, model::RecordSource::kSimulated), cost.total_us, 1e-9 * cost.total_us);
  EXPECT_EQ(std::ranges::count_if(file.records,
                                  [](const auto& record) {
                                    return record.op.ends_with(".moe.dispatch") &&
                                           record.source == model::RecordSource::kSimulated;
                                  }),
            58);
}

TEST(StepRecordsOfDrafts, HaveARowOfTheirOwn) {
  const Deployment asked = deployment("tp8", 4, {0.8});
  const auto fits = choose_fits(built_in_calibrations(), asked.hardware);
  MoeCurves curves;
  const auto file = step_records(asked, fits, curves, "abc");
  EXPECT_EQ(std::ranges::count(file.records, "mtp.drafting", &model::OpRecord::op), 1);
  EXPECT_GT(std::ranges::count_if(file.records,
                                  [](const auto& record) {
                                    return record.op.starts_with("mtp.0.") &&
                                           record.source == model::RecordSource::kLimit;
                                  }),
            10);
}

TEST(StepRecordsOfLimits, AreTheFloorsOfTheWalk) {
  const Deployment asked = deployment("dep16", 8);
  const auto fits = choose_fits(built_in_calibrations(), asked.hardware);
  MoeCurves curves;
  const auto file = step_records(asked, fits, curves, "abc");
  const auto plan = plan_layout(asked.config, asked.decode.rank.layout);
  const Walk steps = walk(plan, {.num_sequences = 8, .num_cached = 1099});
  double floor_us = 0;
  for (const Floor& floor : walk_floors(steps, asked.config, asked.hardware)) {
    floor_us += floor.time_us;
  }
  EXPECT_NEAR(sum_us(file, model::RecordSource::kLimit), floor_us, 1e-9 * floor_us);
}

// 58 MoE layers, and the waiting of the slowest rank in each.
TEST(StepRecordsOfSkew, AreOneAMoeLayer) {
  const Deployment asked = deployment("dep16", 8);
  const auto fits = choose_fits(built_in_calibrations(), asked.hardware);
  MoeCurves curves;
  const auto file = step_records(asked, fits, curves, "abc");
  EXPECT_EQ(std::ranges::count(file.records, "waiting", &model::OpRecord::kind), 58);
}

}  // namespace
}  // namespace simulator
