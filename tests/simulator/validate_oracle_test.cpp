// The model against the published development rows: the accuracy that docs/simulator.md states, and that the shipped constants are
// those that the tables give.
#include <gtest/gtest.h>

#include "simulator/calibrate.hpp"
#include "simulator/validate.hpp"
#include "tests/shared_data.hpp"

namespace simulator {
namespace {

TEST(ValidateOracle, RowsThatWereNotFitted_AreWithinTheStatedErrors) {
  const auto file = shared_data("measurements/e2e_tpot_b200_b300_gb200_fp8.csv");
  SKIP_UNLESS_THERE(file);
  const SiliconRows silicon = read_silicon(*file, false);
  ASSERT_EQ(silicon.rows.size(), 76U);  // README of the measurements: off_inferred
  ASSERT_EQ(silicon.num_skipped, 84);
  const std::vector<ValidatedRow> rows = validate(silicon.rows, built_in_calibrations());
  std::vector<Comparison> reported;
  for (const ValidatedRow& row : rows) {
    if (!is_fitting_row(*row.row)) {
      reported.push_back(row.comparison());
    }
  }
  const ErrorSummary summary = summarise(reported);
  EXPECT_GE(summary.rows, 30);
  EXPECT_LE(summary.median_abs_error_pct, 10);
  EXPECT_LE(summary.p90_abs_error_pct, 22);
  EXPECT_GE(summary.coverage_90_pct, 80);
  EXPECT_LE(summary.coverage_90_pct, 98);
}

TEST(ValidateOracle, ShippedConstants_AreThoseOfTheTables) {
  const auto directory = shared_data("measurements");
  SKIP_UNLESS_THERE(directory);
  EXPECT_EQ(calibration_json(calibrate(*directory)), calibration_json(built_in_calibrations()));
}

}  // namespace
}  // namespace simulator
