// Holds the model against published end-to-end measurements, and fits the engines' constants to one half of them.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/error_summary.hpp"
#include "simulator/silicon.hpp"
#include "simulator/table.hpp"

namespace simulator {

struct ValidatedRow {
  const SiliconRow* row = nullptr;
  double predicted_ms = 0;
  double low_ms = 0;
  double high_ms = 0;
  bool beats_memory =
      false;  // it ran although the budget says that its weights do not fit: predicted without the budget

  [[nodiscard]] Comparison comparison() const { return {predicted_ms, low_ms, high_ms, row->tpot_ms}; }
};

std::vector<ValidatedRow> validate(const std::vector<SiliconRow>& rows, const std::vector<Calibration>& calibrations);

// "summary" (a record: rows, median_abs_error_pct, p90_abs_error_pct, bias_pct, coverage_90_pct), "by_group", "rows".
std::vector<Table> validation_tables(const SiliconRows& silicon, const std::vector<ValidatedRow>& rows);

// Rows of odd place in the file are for fitting, the others for the report.
bool is_fitting_row(const SiliconRow& row);

// Constants of sglang, trtllm and (assumed: their mean) vllm from the fitting rows: one stream factor for all, host time and prefill
// factor of each engine, sglang's attention of prompts on B300 (two constants), and what a layer of a 2025 release takes more on Blackwell.
std::vector<EngineProfile> fit_engines(const std::vector<SiliconRow>& rows,
                                       const std::vector<Calibration>& calibrations);

}  // namespace simulator
