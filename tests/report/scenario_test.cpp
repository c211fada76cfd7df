// Joins: what is put side by side, what never is, and what a reader is told.
#include "report/scenario.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/check.hpp"

namespace report {
namespace {

using model::OpRecord;
using model::RecordSource;

OpRecord record(const std::string& op, RecordSource source, double time_us, const std::string& device = "h200") {
  return {.op = op,
          .kind = "linear",
          .layer = op.starts_with("layer.") ? std::stoll(op.substr(6)) : -1,
          .phase = "decode",
          .tokens = 1,
          .batch = 1,
          .context_len = 100,
          .dtype = "BF16",
          .flops = 2'000'000,
          .weight_bytes = 1'000'000,
          .time_us = time_us,
          .source = source,
          .device = device,
          .config_hash = "c0",
          .commit = "abc"};
}

RecordFile file(std::vector<OpRecord> records, std::vector<std::string> header = {}) {
  return {"f.csv", {.header = std::move(header), .records = std::move(records)}};
}

const Row& row_of(const Scenario& scenario, const std::string& op) {
  const auto found = std::ranges::find(scenario.rows, op, &Row::op);
  EXPECT_NE(found, scenario.rows.end()) << op;
  return *found;
}

bool tells(const std::vector<Notice>& notices, const std::string& words) {
  return std::ranges::any_of(notices,
                             [&](const Notice& notice) { return notice.text.find(words) != std::string::npos; });
}

TEST(Scenario, SourcesOfOneStepStandSideBySide) {
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios({file({record("layer.0.attn.q_a", RecordSource::kCuda, 12),
                                                record("layer.0.attn.q_a", RecordSource::kSimulated, 10),
                                                record("layer.0.attn.q_a", RecordSource::kLimit, 5)})},
                                         "h200",
                                         notices);
  ASSERT_EQ(scenarios.size(), 1);
  const Scenario& scenario = scenarios[0];
  ASSERT_EQ(scenario.series.size(), 3);
  EXPECT_EQ(scenario.series[0].title, "measured, h200");
  ASSERT_EQ(scenario.rows.size(), 1);
  EXPECT_EQ(scenario.rows[0].cells[0].time_us, 12);
  EXPECT_EQ(scenario.rows[0].cells[1].time_us, 10);
  EXPECT_EQ(scenario.rows[0].cells[2].time_us, 5);
  ASSERT_EQ(scenario.ratios.size(), 3);
  EXPECT_EQ(scenario.ratios[0].title, "measured / simulated");
  EXPECT_EQ(scenario.main_series(), 0);
  EXPECT_TRUE(notices.empty());
}

// A CPU joins the deployment of the same step, and no ratio mixes the two clocks.
TEST(Scenario, CpuTimesAreNeverDividedByGpuTimes) {
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios({file({record("layer.0.attn.q_a", RecordSource::kReference, 900, "a CPU")}),
                                          file({record("layer.0.attn.q_a", RecordSource::kSimulated, 10),
                                                record("layer.0.attn.q_a", RecordSource::kLimit, 5)})},
                                         "h200",
                                         notices);
  ASSERT_EQ(scenarios.size(), 1);
  ASSERT_EQ(scenarios[0].series.size(), 3);
  EXPECT_EQ(scenarios[0].series[0].clock, Series::Clock::kCpu);
  for (const Ratio& ratio : scenarios[0].ratios) {
    EXPECT_EQ(scenarios[0].series[ratio.above].clock, scenarios[0].series[ratio.below].clock);
  }
  EXPECT_EQ(scenarios[0].ratios.size(), 1);  // simulated / limit
  EXPECT_EQ(scenarios[0].main_series(), 1);
}

// 1 MB over 4.8 TB/s is 0.2083 us; 2 MFLOP over 989 TFLOPS far less.
TEST(Scenario, EmulatedRunsGetARooflineAndNoTime) {
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios(
      {file({record("layer.0.attn.q_a", RecordSource::kEmulated, 123456, "emulated")})}, "h200", notices);
  ASSERT_EQ(scenarios.size(), 1);
  ASSERT_EQ(scenarios[0].series.size(), 1);
  EXPECT_EQ(scenarios[0].series[0].source, RecordSource::kLimit);
  const double rate = scenarios[0].hardware.memory_gb_per_s.value;
  EXPECT_NEAR(*scenarios[0].rows[0].cells[0].time_us, 1e6 / (rate * 1e3), 1e-12);
  EXPECT_TRUE(tells(notices, "no time"));
}

// Three steps of one kind: the middle one stands for them, and launches of one op do not count as repeated rows.
TEST(Scenario, OfEmulatedStepsTheMiddleOneIsShown) {
  std::vector<OpRecord> records;
  for (const int64_t context : {10, 11, 12}) {
    for (int launch = 0; launch < 2; ++launch) {
      records.push_back(record("layer.0.attn.q_a", RecordSource::kEmulated, 1, "emulated"));
      records.back().context_len = context;
    }
  }
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios({file(records)}, "h200", notices);
  ASSERT_EQ(scenarios.size(), 1);
  EXPECT_EQ(scenarios[0].context_len, 11);
  EXPECT_FALSE(tells(notices, "repeat"));
}

TEST(Scenario, RunsWithoutADeploymentShareTheirStep) {
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios({file({record("layer.0.attn.q_a", RecordSource::kReference, 900, "a CPU")}),
                                          file({record("layer.0.attn.q_a", RecordSource::kEmulated, 1, "emulated")})},
                                         "h200",
                                         notices);
  ASSERT_EQ(scenarios.size(), 1);
  EXPECT_EQ(scenarios[0].series.size(), 2);  // the CPU's time, and the roofline of the counts
}

// 1e6 B at 10 GB/s: 100 us; 2e6 FLOP at 100 GFLOP/s: 20 us. The op takes 400.
TEST(Scenario, HostPeaksDrawTheCpusOwnRoofline) {
  OpRecord fma = record("host.fma", RecordSource::kReference, 10, "a CPU");
  fma.flops = 1'000'000;
  fma.weight_bytes = 0;
  OpRecord read = record("host.read", RecordSource::kReference, 10, "a CPU");
  read.flops = 0;
  read.weight_bytes = 100'000;
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios(
      {file({record("layer.0.attn.q_a", RecordSource::kReference, 400, "a CPU"), fma, read})}, "h200", notices);
  ASSERT_EQ(scenarios.size(), 1);
  ASSERT_TRUE(scenarios[0].host);
  EXPECT_EQ(scenarios[0].series[1].title, "CPU roofline");
  EXPECT_NEAR(*scenarios[0].rows[0].cells[1].time_us, 100, 1e-9);
  ASSERT_EQ(scenarios[0].ratios.size(), 1);
  EXPECT_EQ(scenarios[0].ratios[0].below, 1);
}

TEST(Scenario, ModelsAndStepsAreNotMixed) {
  OpRecord other = record("layer.0.attn.q_a", RecordSource::kSimulated, 10);
  other.config_hash = "c1";
  OpRecord longer = record("layer.0.attn.q_a", RecordSource::kSimulated, 10);
  longer.context_len = 5000;
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios(
      {file({record("layer.0.attn.q_a", RecordSource::kSimulated, 10), other, longer})}, "h200", notices);
  EXPECT_EQ(scenarios.size(), 3);
  EXPECT_TRUE(tells(notices, "2 models"));
}

TEST(Scenario, TheSlowestRankCounts) {
  OpRecord slow = record("layer.0.attn.q_a", RecordSource::kCuda, 14);
  slow.rank = 1;
  std::vector<Notice> notices;
  const auto scenarios =
      build_scenarios({file({record("layer.0.attn.q_a", RecordSource::kCuda, 12), slow})}, "h200", notices);
  EXPECT_EQ(scenarios[0].rows[0].cells[0].time_us, 14);
  EXPECT_EQ(scenarios[0].rows[0].cells[0].rank, 1);
  EXPECT_EQ(scenarios[0].series[0].rank_us.size(), 2);
}

TEST(Scenario, ReadersAreToldAboutRepeatedMissingAndImpossibleRows) {
  std::vector<Notice> notices;
  build_scenarios({file({record("layer.0.attn.q_a", RecordSource::kCuda, 0.004),
                         record("layer.0.attn.q_a", RecordSource::kCuda, 0.004),
                         record("layer.0.attn.q_a", RecordSource::kLimit, 5),
                         record("layer.0.attn.kv_a", RecordSource::kLimit, 5)})},
                  "h200",
                  notices);
  EXPECT_TRUE(tells(notices, "repeat an op and rank"));
  EXPECT_TRUE(tells(notices, "no time for 1 of 2 ops (first: layer.0.attn.kv_a)"));
  EXPECT_TRUE(tells(notices, "another unit"));
}

TEST(Scenario, WaitingStandsBehindItsLayerAndTheEngineLast) {
  OpRecord waiting = record("layer.0.moe.waiting", RecordSource::kSimulated, 1);
  waiting.kind = "waiting";
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios({file({record("engine.host", RecordSource::kSimulated, 1),
                                                waiting,
                                                record("layer.0.output", RecordSource::kLimit, 1),
                                                record("layer.1.output", RecordSource::kLimit, 1)})},
                                         "h200",
                                         notices);
  ASSERT_EQ(scenarios[0].rows.size(), 4);
  EXPECT_EQ(scenarios[0].rows[0].op, "layer.0.output");
  EXPECT_EQ(scenarios[0].rows[1].op, "layer.0.moe.waiting");
  EXPECT_EQ(scenarios[0].rows[3].op, "engine.host");
  EXPECT_EQ(row_of(scenarios[0], "layer.0.moe.waiting").phase, Phase::kWaiting);
}

// 10 us of computing and 4 of exchange: the one can hide the other, whatever runs.
TEST(Scenario, TheLimitOfAStepIsTheLargerOfComputingAndExchange) {
  OpRecord exchange = record("layer.0.ffn.all_reduce", RecordSource::kLimit, 4);
  exchange.kind = "all_reduce";
  OpRecord simulated = exchange;
  simulated.source = RecordSource::kSimulated;
  std::vector<Notice> notices;
  const auto scenarios = build_scenarios({file({record("layer.0.attn.q_a", RecordSource::kLimit, 10),
                                                exchange,
                                                record("layer.0.attn.q_a", RecordSource::kSimulated, 10),
                                                simulated})},
                                         "h200",
                                         notices);
  EXPECT_EQ(scenarios[0].step_us(*scenarios[0].find(RecordSource::kLimit)), 10);
  EXPECT_EQ(scenarios[0].step_us(*scenarios[0].find(RecordSource::kSimulated)), 14);
}

TEST(Scenario, NothingToJoinIsRefused) {
  std::vector<Notice> notices;
  EXPECT_THROW(build_scenarios({file({})}, "h200", notices), model::InputError);
  EXPECT_THROW(build_scenarios({file({record("embed", RecordSource::kReference, 1, "a CPU")})}, "h999", notices),
               model::InputError);
}

}  // namespace
}  // namespace report
