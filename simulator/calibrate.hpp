// Fits the constants of op_fit.hpp to published timing tables.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "simulator/calibration.hpp"
#include "simulator/table.hpp"

namespace simulator {

// One measured call.
struct MeasuredOp {
  OpWork work;
  double time_us = 0;
};

// Constants with the least mean |log(predicted / measured)|; constants that no row depends on stay as in `start`. The residuals are
// of five fits that each leave out every fifth row. Rows that beat the hardware's floor are left out and counted. Throws InputError
// (opened by `origin`) for fewer than 5 rows.
OpFit fit_op(OpFamily family,
             const std::vector<MeasuredOp>& rows,
             std::vector<double> start,
             const Peaks& peaks,
             const std::string& origin);

// All families for which `directory` has tables (docs/simulator.md lists which file feeds which), by GPU. Throws InputError: no
// table at all, or a table that cannot be read.
std::vector<Calibration> calibrate(const std::filesystem::path& directory);

// GPU, family, constants, left-out errors.
Table calibration_table(const std::vector<Calibration>& calibrations);

}  // namespace simulator
