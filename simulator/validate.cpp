#include "simulator/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "model/check.hpp"
#include "simulator/fit_constants.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

// Fits depend on the GPU alone.
class FitsByGpu {
 public:
  explicit FitsByGpu(const std::vector<Calibration>& calibrations) : calibrations_(calibrations) {}

  const std::vector<ChosenFit>& of(const Hardware& hardware) {
    const auto known = fits_.find(hardware.name);
    return known != fits_.end() ? known->second
                                : fits_.emplace(hardware.name, choose_fits(calibrations_, hardware)).first->second;
  }

 private:
  const std::vector<Calibration>& calibrations_;
  std::map<std::string, std::vector<ChosenFit>> fits_;
};

// The half for fitting, and the loss that weighs the middle and the tail.
constexpr double kTailWeight = 0.5;

double loss_of(std::vector<double> abs_logs) {
  double sum = 0;
  for (const double value : abs_logs) {
    sum += value;
  }
  return sum / static_cast<double>(abs_logs.size()) + kTailWeight * quantile(std::move(abs_logs), 0.9);
}

// sglang, trtllm from the nine positive numbers that are fitted.
struct EngineConstants {
  EngineProfile sglang{.name = "sglang"};
  EngineProfile trtllm{.name = "trtllm"};
};

EngineConstants engines_of(std::span<const double> x) {
  EngineConstants engines;
  engines.sglang.stream_factor = engines.trtllm.stream_factor = x[0];
  engines.sglang.host_us = x[1];
  engines.trtllm.host_us = x[2];
  engines.sglang.prefill_factor = x[3];
  engines.trtllm.prefill_factor = x[4];
  engines.sglang.b300_scores_factor = x[5];
  engines.sglang.early_blackwell_layer_us = x[6];
  engines.trtllm.early_blackwell_layer_us = x[7];
  engines.sglang.b300_scores_us = x[8];
  return engines;
}

double rounded(double value) {
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

class EngineFit {
 public:
  explicit EngineFit(const std::vector<Calibration>& calibrations) : fits_(calibrations) {}

  std::vector<double> constants(const std::vector<SiliconRow>& rows) {
    constexpr int kSteps = 600;
    return minimise_positive([&](std::span<const double> x) { return loss_of(abs_logs(rows, x)); },
                             std::vector<double>{1.15, 500, 1000, 2.5, 1.7, 30, 40, 60, 200},
                             kSteps);
  }

  // |log(predicted / measured)| of each row by constants fitted without it and every sixth other.
  std::vector<double> left_out_abs_logs(const std::vector<SiliconRow>& rows) {
    constexpr size_t kFolds = 6;
    std::vector<double> logs;
    for (size_t fold = 0; fold < kFolds; ++fold) {
      std::vector<SiliconRow> kept;
      std::vector<SiliconRow> left_out;
      for (size_t i = 0; i < rows.size(); ++i) {
        (i % kFolds == fold ? left_out : kept).push_back(rows[i]);
      }
      const std::vector<double> of_fold = abs_logs(left_out, constants(kept));
      logs.insert(logs.end(), of_fold.begin(), of_fold.end());
    }
    return logs;
  }

 private:
  std::vector<double> abs_logs(const std::vector<SiliconRow>& rows, std::span<const double> x) {
    const EngineConstants engines = engines_of(x);
    std::vector<double> logs;
    for (const SiliconRow& row : rows) {
      Deployment deployment = row.deployment;
      deployment.engine = row.backend == "trtllm" ? engines.trtllm : engines.sglang;
      const Serving serving = serve(deployment, fits_.of(deployment.hardware), curves_);
      logs.push_back(std::abs(std::log(serving.tpot_ms / row.tpot_ms)));
    }
    return logs;
  }

  FitsByGpu fits_;
  MoeCurves curves_;
};

}  // namespace

bool is_fitting_row(const SiliconRow& row) {
  return row.line % 2 == 1;
}

std::vector<ValidatedRow> validate(const std::vector<SiliconRow>& rows, const std::vector<Calibration>& calibrations) {
  FitsByGpu fits(calibrations);
  MoeCurves curves;
  std::vector<ValidatedRow> validated;
  for (const SiliconRow& row : rows) {
    Deployment deployment = row.deployment;
    const MemoryBudget budget =
        memory_budget(deployment.config,
                      deployment.hardware,
                      deployment.decode.rank,
                      {.tokens_per_sequence = deployment.workload.prompt_tokens + deployment.workload.answer_tokens,
                       .prefill_chunk = deployment.workload.prompt_tokens,
                       .memory_frac = deployment.memory_frac});
    const bool beats_memory = budget.max_sequences < 1;
    if (beats_memory) {
      constexpr double kAnyMemory = 1e3;
      deployment.memory_frac = kAnyMemory;
    }
    try {
      const Serving serving = serve(deployment, fits.of(deployment.hardware), curves);
      validated.push_back({.row = &row,
                           .predicted_ms = serving.tpot_ms,
                           .low_ms = serving.tpot_low_ms,
                           .high_ms = serving.tpot_high_ms,
                           .beats_memory = beats_memory});
    } catch (const model::InputError& error) {
      model::throw_input_error("line {} ({}): {}", row.line, row.id, error.what());
    }
  }
  return validated;
}

std::vector<Table> validation_tables(const SiliconRows& silicon, const std::vector<ValidatedRow>& rows) {
  const auto columns_of_errors = [](std::vector<Column> columns) {
    columns.insert(columns.end(),
                   {{"rows", "rows"},
                    {"median_abs_error_pct", "median error", "%", 1, 1},
                    {"p90_abs_error_pct", "p90 error", "%", 1, 1},
                    {"bias_pct", "bias", "%", 1, 1},
                    {"coverage_90_pct", "in 90 % interval", "%", 1, 1}});
    return columns;
  };
  const auto errors = [](const ErrorSummary& summary, std::vector<Cell> cells) {
    cells.insert(cells.end(),
                 {summary.rows,
                  summary.median_abs_error_pct,
                  summary.p90_abs_error_pct,
                  summary.bias_pct,
                  summary.coverage_90_pct});
    return cells;
  };
  std::vector<Comparison> all;
  std::map<std::string, std::vector<Comparison>> groups;
  for (const ValidatedRow& row : rows) {
    all.push_back(row.comparison());
    groups["gpu " + row.row->gpu].push_back(row.comparison());
    groups["backend " + row.row->backend].push_back(row.comparison());
    groups["phase " + row.row->phase].push_back(row.comparison());
    groups[is_fitting_row(*row.row) ? "lines odd" : "lines even"].push_back(row.comparison());
  }
  std::string title = "Token time predicted against measured";
  for (const std::string& reason : silicon.skip_reasons) {
    title += "; left out: " + reason;
  }
  if (const auto num = std::ranges::count_if(rows, &ValidatedRow::beats_memory); num > 0) {
    title += fmt::format("; {} rows ran although the memory budget says that they do not fit", num);
  }
  Table summary{.name = "summary", .title = std::move(title), .columns = columns_of_errors({}), .is_record = true};
  summary.add(errors(summarise(all), {}));
  Table by_group{
      .name = "by_group", .title = "By GPU, backend and phase", .columns = columns_of_errors({{"group", "group"}})};
  for (const auto& [name, members] : groups) {
    by_group.add(errors(summarise(members), {name}));
  }
  Table each{.name = "each_row",
             .title = "Every row",
             .columns = {{"line", "line"},
                         {"id", "id"},
                         {"gpu", "GPU"},
                         {"backend", "engine"},
                         {"layout", "decode layout"},
                         {"kv_dtype", "KV"},
                         {"tpot_ms", "measured", "ms", 1, 2},
                         {"predicted_ms", "predicted", "ms", 1, 2},
                         {"low_ms", "low", "ms", 1, 2},
                         {"high_ms", "high", "ms", 1, 2},
                         {"error_pct", "error", "%", 1, 1}}};
  for (const ValidatedRow& row : rows) {
    each.add({row.row->line,
              row.row->id,
              row.row->gpu,
              row.row->deployment.engine.name,
              layout_text(row.row->deployment.decode.rank.layout),
              std::string(row.row->deployment.decode.rank.kv_dtype == KvDtype::kFp8 ? "fp8" : "bf16"),
              row.row->tpot_ms,
              row.predicted_ms,
              row.low_ms,
              row.high_ms,
              row.comparison().error_pct()});
  }
  return {std::move(summary), std::move(by_group), std::move(each)};
}

std::vector<EngineProfile> fit_engines(const std::vector<SiliconRow>& rows,
                                       const std::vector<Calibration>& calibrations) {
  EngineFit fit(calibrations);
  std::vector<SiliconRow> fitting;
  std::ranges::copy_if(rows, std::back_inserter(fitting), is_fitting_row);
  std::vector<double> best = fit.constants(fitting);
  std::ranges::transform(best, best.begin(), rounded);
  EngineConstants engines = engines_of(best);
  constexpr double kNormal90 = 1.645;
  const double spread = rounded(quantile(fit.left_out_abs_logs(fitting), 0.9) / kNormal90);
  const std::string source = fmt::format(
      "fitted to {} rows of e2e_tpot_b200_b300_gb200_fp8.csv (aiconfigurator@095f58a, MTP off)", fitting.size());
  engines.sglang.source = engines.trtllm.source = source;
  engines.sglang.measured_on = engines.trtllm.measured_on = "blackwell";
  engines.trtllm.b300_scores_factor = 1;
  EngineProfile vllm{.name = "vllm", .source = "assumed: the mean of sglang and trtllm, no row measured"};
  for (double EngineProfile::*member : {&EngineProfile::stream_factor,
                                        &EngineProfile::host_us,
                                        &EngineProfile::prefill_factor,
                                        &EngineProfile::early_blackwell_layer_us}) {
    vllm.*member = rounded((engines.sglang.*member + engines.trtllm.*member) / 2);
  }
  std::vector<EngineProfile> profiles{
      EngineProfile{.name = "ideal", .measured_on = "any", .source = "kernels back to back, no host"},
      std::move(engines.sglang),
      std::move(engines.trtllm),
      std::move(vllm)};
  for (EngineProfile& profile : profiles) {
    profile.log_spread = spread;
  }
  return profiles;
}

}  // namespace simulator
