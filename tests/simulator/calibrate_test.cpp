#include "simulator/calibrate.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "model/check.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/fit_constants.hpp"

namespace simulator {
namespace {

constexpr Peaks kPeaks{.memory = 1e6, .fp8_math = 1e9, .bf16_math = 5e8, .nvlink = 1e5, .network = 1e4};

// Times written down from 7 us + bytes / (0.5 memory), far from the peak of math.
std::vector<MeasuredOp> memory_bound_rows() {
  std::vector<MeasuredOp> rows;
  for (int i = 1; i <= 40; ++i) {
    const double bytes = 1e6 * i;
    rows.push_back({{.weight_bytes = bytes, .weight_flops = 1}, 7 + bytes / 0.5e6});
  }
  return rows;
}

TEST(FitOp, KnownConstants_AreFoundAgain) {
  const OpFit fit = fit_op(OpFamily::kGemmFp8, memory_bound_rows(), {20, 0.9, 0.3}, kPeaks, "made up");
  EXPECT_NEAR(fit.constants[0], 7, 0.05);
  EXPECT_NEAR(fit.constants[1], 0.5, 0.002);
  EXPECT_LT(fit.residuals.p90_frac, 0.01);
  EXPECT_EQ(fit.residuals.num_rows, 40);
}

TEST(FitOp, RowFasterThanTheHardware_IsLeftOutAndCounted) {
  std::vector<MeasuredOp> rows = memory_bound_rows();
  rows.push_back({{.weight_bytes = 1e9}, 10});  // 1000 us at the peak
  const OpFit fit = fit_op(OpFamily::kGemmFp8, rows, {20, 0.9, 0.3}, kPeaks, "made up");
  EXPECT_EQ(fit.residuals.num_below_floor, 1);
  EXPECT_NEAR(fit.constants[1], 0.5, 0.002);
}

TEST(FitOp, ConstantThatNoRowTouches_StaysAsItWas) {
  std::vector<MeasuredOp> rows;
  for (int i = 1; i <= 10; ++i) {
    rows.push_back({{.nvlink_bytes = 1e5 * i, .num_domains = 1}, 10 + 2.0 * i});
  }
  const OpFit fit = fit_op(OpFamily::kDispatch, rows, {5, 4.5, 0.6, 0.95}, kPeaks, "made up");
  EXPECT_EQ(fit.constants[1], 4.5);
  EXPECT_EQ(fit.constants[3], 0.95);
  EXPECT_NEAR(fit.constants[2], 0.5, 0.002);
}

TEST(Calibration, WrittenFile_ReadsBackTheSame) {
  const std::vector<Calibration> built_in = built_in_calibrations();
  const std::vector<Calibration> again = parse_calibrations(calibration_json(built_in), "again");
  ASSERT_EQ(again.size(), built_in.size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].gpu, built_in[i].gpu);
    EXPECT_EQ(again[i].fits, built_in[i].fits);
  }
  EXPECT_THROW(parse_calibrations(R"({"h100": {"gemm_fp8": {"memory": 1}}})", "short"), model::InputError);
  EXPECT_THROW(parse_calibrations(R"({"h100": {"gemm_fp9": {}}})", "unknown"), model::InputError);
}

TEST(Calibration, GpuWithoutATable_BorrowsWithinItsGeneration) {
  for (const ChosenFit& fit : choose_fits(built_in_calibrations(), load_hardware("b300"))) {
    if (fit.fit.family != OpFamily::kPrefillScores) {
      EXPECT_TRUE(fit.measured_on == "b200" || fit.measured_on == "gb200-nvl72") << fit.measured_on;
      EXPECT_TRUE(fit.is_borrowed);
    }
  }
}

// (x - 3)^2 + (y - 2)^2 has its minimum at (3, 2).
TEST(MinimisePositive, FindsTheMinimum) {
  const auto loss = [](std::span<const double> x) { return std::pow(x[0] - 3, 2) + std::pow(x[1] - 2, 2); };
  const std::vector<double> best = minimise_positive(loss, std::vector<double>{1, 1});
  EXPECT_NEAR(best[0], 3, 1e-3);
  EXPECT_NEAR(best[1], 2, 1e-3);
  EXPECT_DOUBLE_EQ(quantile({4, 1, 3, 2}, 0.5), 2.5);
}

}  // namespace
}  // namespace simulator
