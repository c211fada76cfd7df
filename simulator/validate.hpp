// Holds the model against published end-to-end measurements, and fits the engines' constants to one half of them.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/silicon.hpp"
#include "simulator/table.hpp"

namespace simulator {

struct ValidatedRow {
  const SiliconRow* row = nullptr;
  double predicted_ms = 0;
  double low_ms = 0;
  double high_ms = 0;

  [[nodiscard]] double error_frac() const { return predicted_ms / row->tpot_ms - 1; }
  [[nodiscard]] bool is_covered() const { return low_ms <= row->tpot_ms && row->tpot_ms <= high_ms; }
};

struct ErrorSummary {
  int64_t num_rows = 0;
  double median_abs_frac = 0;
  double p90_abs_frac = 0;
  double bias_frac = 0;  // mean of the signed errors
  double coverage_frac = 0;
};

std::vector<ValidatedRow> validate(const std::vector<SiliconRow>& rows, const std::vector<Calibration>& calibrations);
ErrorSummary summarise(const std::vector<const ValidatedRow*>& rows);

// "summary" (a record: rows, median_abs_error_pct, p90_abs_error_pct, bias_pct, coverage_90_pct), "by_group", "rows".
std::vector<Table> validation_tables(const SiliconRows& silicon, const std::vector<ValidatedRow>& rows);

// Rows of odd place in the file are for fitting, the others for the report.
bool is_fitting_row(const SiliconRow& row);

// Constants of sglang, trtllm and (assumed: their mean) vllm from the fitting rows: one stream factor for all, host time and prefill
// factor of each engine, sglang's attention of prompts on B300, and what a layer of a 2025 release takes more on Blackwell.
std::vector<EngineProfile> fit_engines(const std::vector<SiliconRow>& rows,
                                       const std::vector<Calibration>& calibrations);

}  // namespace simulator
