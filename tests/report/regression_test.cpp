// Changes against a baseline, judged by the noise of the two runs.
#include "report/regression.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace report {
namespace {

using model::OpRecord;
using model::RecordSource;

OpRecord record(double time_us, double spread_us, int64_t repetitions, const std::string& op = "embed") {
  return {.op = op,
          .phase = "decode",
          .time_us = time_us,
          .time_us_p10 = time_us - spread_us,
          .time_us_p90 = time_us + spread_us,
          .repetitions = repetitions,
          .source = RecordSource::kCuda,
          .device = "h200"};
}

RecordFile file(std::vector<OpRecord> records) {
  return {"f.csv", {.header = {}, .records = std::move(records)}};
}

Change change(const OpRecord& before, const OpRecord& now) {
  return compare_records({file({now})}, {file({before})}).ops.at(0).change;
}

// One row: t = sqrt(2 ln 200) = 3.26. +-1 us and 100 repetitions: 1.2533 x 2 / 2.5631 / 10 = 0.0978 us each, 0.45 us for the difference.
TEST(Regression, ChangesInsideTheNoiseAreNone) {
  EXPECT_EQ(change(record(20, 1, 100), record(20.4, 1, 100)), Change::kSame);
  EXPECT_EQ(change(record(20, 1, 100), record(20.6, 1, 100)), Change::kSlower);
  EXPECT_EQ(change(record(20, 1, 100), record(19.4, 1, 100)), Change::kFaster);
}

TEST(Regression, LessThanOnePercentIsNothing) {
  EXPECT_EQ(change(record(1000, 0.1, 100), record(1009, 0.1, 100)), Change::kSame);
}

TEST(Regression, WithoutKnownNoiseNobodyCanTell) {
  EXPECT_EQ(change(record(20, 1, 2), record(30, 1, 2)), Change::kUnclear);
}

TEST(Regression, ComputedTimesHaveNoNoise) {
  OpRecord before = record(20, 0, 0);
  before.source = RecordSource::kSimulated;
  OpRecord now = before;
  now.time_us = 21;
  EXPECT_EQ(change(before, now), Change::kSlower);
}

TEST(Regression, OnlyTheSameOpStepAndDeviceAreCompared) {
  OpRecord other = record(20, 1, 100);
  other.device = "h100";
  const Regression regression = compare_records({file({record(20, 1, 100)})}, {file({other})});
  EXPECT_TRUE(regression.ops.empty());
  EXPECT_EQ(regression.num_only_new, 1);
  EXPECT_EQ(regression.num_only_old, 1);
}

// Medians of 101 draws of the same distribution, 1000 ops, 20 pairs of runs: the promise is one false alarm in a hundred pairs.
TEST(Regression, EqualRunsRaiseNoAlarm) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> times(3, 0.2);
  const auto run = [&] {
    std::vector<OpRecord> records;
    for (int op = 0; op < 1000; ++op) {
      std::vector<double> draws(101);
      std::ranges::generate(draws, [&] { return times(random); });
      std::ranges::sort(draws);
      OpRecord one = record(draws[50], 0, 101, "op" + std::to_string(op));
      one.time_us_p10 = draws[10];
      one.time_us_p90 = draws[90];
      records.push_back(one);
    }
    return file(std::move(records));
  };
  int64_t alarms = 0;
  for (int pair = 0; pair < 20; ++pair) {
    const Regression regression = compare_records({run()}, {run()});
    alarms += regression.count(Change::kSlower) + regression.count(Change::kFaster);
  }
  EXPECT_LE(alarms, 1);
}

}  // namespace
}  // namespace report
