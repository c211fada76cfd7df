// The constants of every op family for a GPU, as a JSON file: those that the project derived are compiled in, `calibrate` writes
// new ones. A family that nobody measured on a GPU takes the fractions of the nearest GPU that has it, and says so.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/op_fit.hpp"
#include "simulator/op_table.hpp"

namespace simulator {

struct Calibration {
  std::string gpu;  // stem of a hardware file
  std::vector<OpFit> fits = {};
};

// {GPU: {family: {constant: number, ..., "num_rows": ..., "source": text}}}. GPU names are stems of hardware files.
std::string calibration_json(const std::vector<Calibration>& calibrations);
// The list that calibration_json() writes. Throws InputError.
std::vector<Calibration> parse_calibrations(std::string_view json_text, const std::string& origin);
// The file that the build embeds.
std::vector<Calibration> built_in_calibrations();
// Throws InputError.
std::vector<Calibration> read_calibrations(const std::string& path);

struct ChosenFit {
  OpFit fit;
  std::string measured_on;   // the GPU whose constants these are
  bool is_borrowed = false;  // from another GPU: fractions of the peak carry over, fixed times as they are
  std::shared_ptr<const OpTable> table =
      {};                    // measured rows that answer in place of the constants; null: the constants do
  std::string what_if = {};  // what a what-if did to the constants, for whoever reads the answer
};

// One call of an op. With axes (op_axes()) a table can answer, without (all 0) only the constants do.
struct OpCall {
  OpFamily family = OpFamily::kGemmFp8;
  OpWork work;
  OpAxes axes = {};
};

struct OpTime {
  double time_us = 0;
  std::optional<OpAnswer> answer = {};  // where a table gave it
};

// By the table where there is one, else by the constants. `chosen` is of the call's family.
OpTime op_time(const ChosenFit& chosen, const OpCall& call, const Peaks& peaks);

// One fit for each family, indexed by the family. Borrowed ones come from the measured GPU whose ratio of FP8 peak to memory rate
// is nearest, same generation first (FP8-less GPUs, Hopper, Blackwell).
std::vector<ChosenFit> choose_fits(const std::vector<Calibration>& calibrations, const Hardware& hardware);

}  // namespace simulator
