#include "simulator/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "model/check.hpp"
#include "model/config.hpp"
#include "simulator/calibration_sources.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/fit_constants.hpp"
#include "simulator/timing_table.hpp"

namespace simulator {
namespace {

constexpr size_t kFolds = 5;
constexpr size_t kMinRows = 5;

double mean_abs_log(OpFamily family,
                    std::span<const double> constants,
                    const std::vector<const MeasuredOp*>& rows,
                    const Peaks& peaks) {
  double sum = 0;
  for (const MeasuredOp* row : rows) {
    sum += std::abs(std::log(predict_us(family, constants, row->work, peaks) / row->time_us));
  }
  return sum / static_cast<double>(rows.size());
}

// Indices of constants that change some prediction.
std::vector<size_t> felt_constants(OpFamily family,
                                   const std::vector<double>& start,
                                   const std::vector<const MeasuredOp*>& rows,
                                   const Peaks& peaks) {
  std::vector<size_t> felt;
  for (size_t i = 0; i < start.size(); ++i) {
    std::vector<double> moved = start;
    moved[i] *= 2;
    const bool is_felt = std::ranges::any_of(rows, [&](const MeasuredOp* row) {
      return predict_us(family, moved, row->work, peaks) != predict_us(family, start, row->work, peaks);
    });
    if (is_felt) {
      felt.push_back(i);
    }
  }
  return felt;
}

std::vector<double> fitted(OpFamily family,
                           const std::vector<const MeasuredOp*>& rows,
                           const std::vector<double>& start,
                           const Peaks& peaks) {
  const std::vector<size_t> felt = felt_constants(family, start, rows, peaks);
  std::vector<double> all = start;
  const auto expand = [&](std::span<const double> values) {
    for (size_t i = 0; i < felt.size(); ++i) {
      // No kernel beats a peak: a fraction above 1 would only say that the formula misses something.
      const bool is_time = op_family_info(family).constants[felt[i]].ends_with("_us");
      all[felt[i]] = is_time ? values[i] : std::min(values[i], 1.0);
    }
    return all;
  };
  std::vector<double> felt_start;
  for (const size_t i : felt) {
    felt_start.push_back(start[i]);
  }
  const auto loss = [&](std::span<const double> values) { return mean_abs_log(family, expand(values), rows, peaks); };
  return expand(minimise_positive(loss, felt_start));
}

// Constants to four digits: more would pretend.
void round_constants(std::vector<double>& constants) {
  for (double& value : constants) {
    const double scale = std::pow(10.0, 3 - std::floor(std::log10(value)));
    value = std::round(value * scale) / scale;
  }
}

}  // namespace

OpFit fit_op(OpFamily family,
             const std::vector<MeasuredOp>& rows,
             std::vector<double> start,
             const Peaks& peaks,
             const std::string& origin) {
  OpFit fit{.family = family, .source = origin};
  std::vector<const MeasuredOp*> possible;
  for (const MeasuredOp& row : rows) {
    const bool beats_floor = row.time_us < floor_us(family, row.work, peaks);
    fit.residuals.num_below_floor += beats_floor ? 1 : 0;
    if (!beats_floor) {
      possible.push_back(&row);
    }
  }
  if (possible.size() < kMinRows) {
    model::throw_input_error("{}: {} usable rows for {}, expected at least {}",
                             origin,
                             possible.size(),
                             op_family_info(family).name,
                             kMinRows);
  }
  std::vector<double> errors;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<const MeasuredOp*> kept;
    for (size_t i = 0; i < possible.size(); ++i) {
      if (i % kFolds != fold) {
        kept.push_back(possible[i]);
      }
    }
    const std::vector<double> constants = fitted(family, kept, start, peaks);
    for (size_t i = fold; i < possible.size(); i += kFolds) {
      const MeasuredOp& row = *possible[i];
      errors.push_back(std::abs(predict_us(family, constants, row.work, peaks) / row.time_us - 1));
    }
  }
  fit.constants = fitted(family, possible, start, peaks);
  round_constants(fit.constants);
  fit.residuals.num_rows = static_cast<int64_t>(possible.size());
  constexpr double kDigits = 1e4;
  fit.residuals.median_frac = std::round(quantile(errors, 0.5) * kDigits) / kDigits;
  fit.residuals.p90_frac = std::round(quantile(errors, 0.9) * kDigits) / kDigits;
  return fit;
}

std::vector<Calibration> calibrate(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    model::throw_input_error("--tables {}: expected a directory of timing tables", directory.string());
  }
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  std::vector<Calibration> calibrations;
  // Constants that a GPU's own rows do not touch start from the GPU fitted before.
  std::map<OpFamily, std::vector<double>> last;
  for (const CalibrationSource& source : calibration_sources()) {
    const std::filesystem::path path = directory / source.file;
    if (!std::filesystem::exists(path, error)) {
      continue;
    }
    std::map<std::string, std::vector<MeasuredOp>> by_gpu;
    for (MeasuredRow& row : measured_rows(source, read_timing_table(path), config)) {
      by_gpu[row.gpu].push_back(row.op);
    }
    for (const auto& [gpu, rows] : by_gpu) {
      const auto start = last.contains(source.family) ? last[source.family] : source.start;
      OpFit fit = fit_op(source.family, rows, start, peaks(load_hardware(gpu)), source.citation);
      last[source.family] = fit.constants;
      auto calibration = std::ranges::find(calibrations, gpu, &Calibration::gpu);
      if (calibration == calibrations.end()) {
        calibration = calibrations.insert(calibrations.end(), Calibration{.gpu = gpu});
      }
      calibration->fits.push_back(std::move(fit));
    }
  }
  if (calibrations.empty()) {
    model::throw_input_error("--tables {}: none of the tables that calibration uses is there", directory.string());
  }
  std::ranges::sort(calibrations, {}, &Calibration::gpu);
  return calibrations;
}

Table calibration_table(const std::vector<Calibration>& calibrations) {
  Table table{.name = "ops",
              .title = "Constants of each op family, and the errors of rows left out of the fit",
              .columns = {{"gpu", "GPU"},
                          {"family", "family"},
                          {"constants", "constants"},
                          {"rows", "rows"},
                          {"below_floor_rows", "below floor"},
                          {"median_abs_error_pct", "median", "%", 1, 1},
                          {"p90_abs_error_pct", "p90", "%", 1, 1}}};
  for (const Calibration& calibration : calibrations) {
    for (const OpFit& fit : calibration.fits) {
      const OpFamilyInfo& info = op_family_info(fit.family);
      std::string constants;
      for (size_t i = 0; i < info.constants.size(); ++i) {
        constants += fmt::format("{}{} {:.4g}", constants.empty() ? "" : ", ", info.constants[i], fit.constants[i]);
      }
      table.add({calibration.gpu,
                 std::string(info.name),
                 constants,
                 fit.residuals.num_rows,
                 fit.residuals.num_below_floor,
                 100 * fit.residuals.median_frac,
                 100 * fit.residuals.p90_frac});
    }
  }
  return table;
}

}  // namespace simulator
