// Which published table feeds which op family, as data, and how a row of it is read as work.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "simulator/calibrate.hpp"
#include "simulator/op_table.hpp"
#include "simulator/timing_table.hpp"

namespace simulator {

// The axes of a row by name.
using RowAxes = std::map<std::string, double>;

struct CalibrationSource {
  std::string file;
  OpFamily family = OpFamily::kGemmFp8;
  std::map<std::string, std::string> labels;  // that a row must have
  std::string time_name;
  std::vector<double> start;  // where the fit starts
  std::function<OpWork(const RowAxes&, const model::ModelConfig&)> work;
  std::string citation;
};

std::span<const CalibrationSource> calibration_sources();

struct MeasuredRow {
  std::string gpu;  // stem of a hardware file
  MeasuredOp op;
  OpAxes axes = {};  // as op_axes() names them; 0 for a family without
  int64_t line = 0;
};

// The rows with the source's labels, shapes those of `config`, whose GPU has a hardware file. Throws InputError for a table of
// another form.
std::vector<MeasuredRow> measured_rows(const CalibrationSource& source,
                                       const TimingTable& table,
                                       const model::ModelConfig& config);

// "H100 80GB HBM3" -> "h100". Empty for a GPU without a hardware file.
std::string hardware_name(const std::string& label);

}  // namespace simulator
