// What a table answers: its rows, between them, near them and beyond them. Times are written down from a utilisation that is known.
#include "simulator/op_table.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "model/check.hpp"
#include "simulator/op_call.hpp"

namespace simulator {
namespace {

constexpr Peaks kPeaks{.memory = 1e6, .fp8_math = 1e9, .bf16_math = 5e8, .nvlink = 1e5, .network = 1e4};

// An all-reduce that reaches `share` of NVLink.
TablePoint all_reduce(double ranks, double bytes, double share, int64_t line) {
  return {.axes = {ranks, bytes},
          .work = {.message_bytes = bytes, .num_ranks = static_cast<int64_t>(ranks)},
          .time_us = bytes / (kPeaks.nvlink * share),
          .line = line};
}

OpAnswer ask(const OpTable& table, double ranks, double bytes) {
  const OpCall call = all_reduce_call(bytes, static_cast<int64_t>(ranks));
  return table.at(call.axes, call.work);
}

OpTable two_sizes() {
  return {OpFamily::kAllReduce, kPeaks, {all_reduce(8, 1e5, 0.1, 2), all_reduce(8, 4e5, 0.4, 3)}, "t.csv"};
}

TEST(OpTable, ARow_IsGivenBackAsItIs) {
  const OpTable table = two_sizes();
  const OpAnswer answer = ask(table, 8, 4e5);
  EXPECT_EQ(answer.kind, AnswerKind::kExact);
  EXPECT_EQ(answer.time_us, 4e5 / (1e5 * 0.4));
  EXPECT_EQ(answer.line, 3);
  EXPECT_EQ(table.source(answer), "t.csv:3: the row itself");
}

// Half way in the logarithm of the size is half way in that of the utilisation: 0.2 at twice 1e5, so 2 us / 0.2.
TEST(OpTable, BetweenRows_UtilisationIsInterpolated) {
  const OpAnswer answer = ask(two_sizes(), 8, 2e5);
  EXPECT_EQ(answer.kind, AnswerKind::kInterpolated);
  EXPECT_NEAR(answer.time_us, 10, 1e-9);
  EXPECT_DOUBLE_EQ(answer.floor_us, 2);
}

TEST(OpTable, BeyondTheRows_UtilisationIsHeldAndSaid) {
  const OpAnswer answer = ask(two_sizes(), 8, 1.6e6);
  EXPECT_EQ(answer.kind, AnswerKind::kHeld);
  EXPECT_NEAR(answer.time_us, 16 / 0.4, 1e-9);
  EXPECT_EQ(ask(two_sizes(), 8, 1e4).kind, AnswerKind::kHeld);
}

// 4 ranks lie between 2 and 8: half way in the logarithm.
TEST(OpTable, TheOuterAxis_IsInterpolatedAsWell) {
  const OpTable table(OpFamily::kAllReduce, kPeaks, {all_reduce(2, 1e5, 0.8, 2), all_reduce(8, 1e5, 0.2, 3)}, "t.csv");
  const OpAnswer answer = ask(table, 4, 1e5);
  EXPECT_EQ(answer.kind, AnswerKind::kInterpolated);
  EXPECT_NEAR(answer.time_us, 1 / 0.4, 1e-9);
}

TEST(OpTable, RepeatedRows_AreTheirMedian) {
  std::vector<TablePoint> points;
  for (const double share : {0.1, 0.2, 0.5}) {
    points.push_back(all_reduce(8, 1e5, share, 2));
  }
  EXPECT_DOUBLE_EQ(ask(OpTable(OpFamily::kAllReduce, kPeaks, points, "t.csv"), 8, 1e5).time_us, 5);
}

TEST(OpTable, RowsFasterThanTheHardware_AreDroppedAndCounted) {
  const OpTable table(OpFamily::kAllReduce, kPeaks, {all_reduce(8, 1e5, 1.5, 2), all_reduce(8, 4e5, 0.4, 3)}, "t.csv");
  EXPECT_EQ(table.num_points(), 1U);
  EXPECT_EQ(table.num_below_floor(), 1);
  EXPECT_THROW(OpTable(OpFamily::kAllReduce, kPeaks, {all_reduce(8, 1e5, 1.5, 2)}, "t.csv"), model::InputError);
}

// Leaving out the middle of three rows whose utilisations are 0.1, 0.3, 0.4 at sizes 1, 2, 4: sqrt(0.1 x 0.4) = 0.2 where it is 0.3,
// so the answer is 1.5 times the time.
TEST(OpTable, ResidualsAreOfRowsLeftOut) {
  const OpTable table(OpFamily::kAllReduce,
                      kPeaks,
                      {all_reduce(8, 1e5, 0.1, 2), all_reduce(8, 2e5, 0.3, 3), all_reduce(8, 4e5, 0.4, 4)},
                      "t.csv");
  const OpAnswer between = ask(table, 8, 3e5);
  EXPECT_EQ(between.num_left_out, 1);
  EXPECT_NEAR(between.median_frac, 0.5, 1e-9);
  // At the edges: 0.3 held for 0.1 (a third of the time), 0.3 for 0.4 (a third more).
  const OpAnswer beyond = ask(table, 8, 8e5);
  EXPECT_EQ(beyond.num_left_out, 2);
  EXPECT_NEAR(beyond.median_frac, (2.0 / 3 + 1.0 / 3) / 2, 1e-9);
  EXPECT_NE(table.source(beyond).find("held at the edge; 2 rows left out"), std::string::npos) << table.source(beyond);
}

TablePoint gemm(double n, double k, double m, double share) {
  const OpCall call = gemm_call({.m = m, .n = n, .k = k}, 1);
  return {.axes = call.axes, .work = call.work, .time_us = floor_us(call.family, call.work, kPeaks) / share};
}

OpAnswer ask_gemm(const OpTable& table, double n, double k, double m) {
  const OpCall call = gemm_call({.m = m, .n = n, .k = k}, 1);
  return table.at(call.axes, call.work);
}

// The shape lies one octave from both: their utilisations count alike, in the logarithm.
TEST(OpTable, AShapeNobodyMeasured_TakesTheUtilisationOfItsNeighbours) {
  const OpTable table(OpFamily::kGemmFp8, kPeaks, {gemm(1024, 512, 16, 0.2), gemm(4096, 512, 16, 0.8)}, "t.csv");
  const OpAnswer answer = ask_gemm(table, 2048, 512, 16);
  EXPECT_EQ(answer.kind, AnswerKind::kNearSites);
  EXPECT_NEAR(answer.floor_us / answer.time_us, 0.4, 1e-9);
  EXPECT_EQ(answer.num_left_out, 2);  // each by the other
}

TEST(OpTable, AShapeFarFromAll_IsHeld) {
  const OpTable table(OpFamily::kGemmFp8, kPeaks, {gemm(1024, 512, 16, 0.2)}, "t.csv");
  const OpAnswer answer = ask_gemm(table, 65536, 512, 16);
  EXPECT_EQ(answer.kind, AnswerKind::kHeld);
  EXPECT_NEAR(answer.floor_us / answer.time_us, 0.2, 1e-9);
}

// A GPU with twice the NVLink: the constants say by how much a call gets faster, their fixed time stays.
TEST(OpTime, OnChangedHardware_TheConstantsScaleTheRow) {
  const OpCall call = all_reduce_call(4e5, 8);
  ChosenFit chosen{.fit = {.family = OpFamily::kAllReduce, .constants = {4, 1, 1000, 1}}, .measured_on = "made up"};
  chosen.table = std::make_shared<const OpTable>(two_sizes());
  Peaks faster = kPeaks;
  faster.nvlink *= 2;
  const double before_us = 4 + 7 * 4.0;  // one shot: 7 x 4e5 bytes at 1e5
  const double after_us = 4 + 7 * 2.0;
  EXPECT_NEAR(op_time(chosen, call, faster).time_us, 10 * after_us / before_us, 1e-9);
  EXPECT_EQ(op_time(chosen, call, kPeaks).time_us, 10);
}

}  // namespace
}  // namespace simulator
