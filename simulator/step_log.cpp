#include "simulator/step_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/csv_table.hpp"
#include "simulator/fit_constants.hpp"

namespace simulator {
namespace {

constexpr double kUsPerMs = 1e3;
constexpr double kNormal90 = 1.645;

struct LogColumn {
  std::string_view name;
  double LoggedStep::*member;
  double scale;
};

constexpr std::array kColumns{LogColumn{"sequences", &LoggedStep::sequences, 1},
                              LogColumn{"context_tokens", &LoggedStep::kv_len, 1},
                              LogColumn{"step_ms", &LoggedStep::time_ms, 1},
                              LogColumn{"step_us", &LoggedStep::time_ms, 1e-3},
                              LogColumn{"step_s", &LoggedStep::time_ms, 1e3}};

double positive_number(const std::string& cell, const std::string& column, const std::string& path, int64_t line) {
  constexpr double kMost = 1e12;
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !(value > 0) || value > kMost) {
    model::throw_input_error(
        "{}:{}: {} is '{}', expected a number above 0", path, line, column, model::printable(cell));
  }
  return value;
}

std::vector<const LogColumn*> columns_of(const CsvTable& table) {
  std::vector<const LogColumn*> columns;
  for (const std::string& name : table.columns) {
    const auto* const found = std::ranges::find(kColumns, name, &LogColumn::name);
    if (found == kColumns.end() ||
        std::ranges::any_of(columns, [&](const LogColumn* other) { return other->member == found->member; })) {
      model::throw_input_error(
          "{}: column '{}', expected sequences, context_tokens and one of step_ms, step_us, step_s",
          table.path,
          model::printable(name));
    }
    columns.push_back(found);
  }
  if (columns.size() != 3) {
    model::throw_input_error("{}: {} columns, expected sequences, context_tokens and one of step_ms, step_us, step_s",
                             table.path,
                             columns.size());
  }
  return columns;
}

// What the model says of one step, apart from the constants that are fitted.
struct ModelledStep {
  double kernels_us = 0;
  double other_us = 0;
  double measured_us = 0;

  [[nodiscard]] double predicted_us(double stream_factor, double host_us) const {
    return other_us + stream_factor * kernels_us + host_us;
  }
};

ModelledStep modelled(const Deployment& deployment,
                      const std::vector<ChosenFit>& fits,
                      MoeCurves& curves,
                      const LoggedStep& step) {
  const auto total_us = [&](double stream_factor) {
    EngineProfile engine = deployment.engine;
    engine.stream_factor = stream_factor;
    engine.host_us = 0;
    const RankLayout& rank = deployment.decode.rank;
    const StepModel model(deployment.config, deployment.hardware, fits, engine, rank, curves);
    const double stages = static_cast<double>(rank.layout.pp);
    return model.decode({.sequences = step.sequences / stages, .kv_len = step.kv_len}).total_us;
  };
  const double kernels_us = total_us(2) - total_us(1);
  return {.kernels_us = kernels_us, .other_us = total_us(1) - kernels_us, .measured_us = step.time_ms * kUsPerMs};
}

std::array<double, 2> fitted(const std::vector<ModelledStep>& steps) {
  const auto loss = [&](std::span<const double> x) {
    double sum = 0;
    for (const ModelledStep& step : steps) {
      sum += std::abs(std::log(step.predicted_us(x[0], x[1]) / step.measured_us));
    }
    return sum / static_cast<double>(steps.size());
  };
  const std::vector<double> best = minimise_positive(loss, std::vector<double>{1, 1000});
  return {best[0], best[1]};
}

Comparison comparison(double predicted_us, double log_spread, const ModelledStep& step) {
  const double factor = std::exp(kNormal90 * log_spread);
  return {.predicted = predicted_us / kUsPerMs,
          .low = predicted_us / factor / kUsPerMs,
          .high = predicted_us * factor / kUsPerMs,
          .measured = step.measured_us / kUsPerMs};
}

double rounded(double value) {
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

}  // namespace

std::vector<LoggedStep> read_step_log(const std::filesystem::path& path) {
  const CsvTable table = read_csv(path);
  const std::vector<const LogColumn*> columns = columns_of(table);
  std::vector<LoggedStep> steps;
  for (const CsvRow& row : table.rows) {
    LoggedStep& step = steps.emplace_back();
    for (size_t i = 0; i < columns.size(); ++i) {
      step.*columns[i]->member =
          positive_number(row.cells[i], table.columns[i], table.path, row.line) * columns[i]->scale;
    }
  }
  constexpr size_t kFewest = 3;
  if (steps.size() < kFewest) {
    model::throw_input_error("{}: {} steps, expected at least {}", table.path, steps.size(), kFewest);
  }
  return steps;
}

CorrectedEngine correct_engine(const Deployment& deployment,
                               const std::vector<ChosenFit>& fits,
                               MoeCurves& curves,
                               const std::vector<LoggedStep>& steps,
                               const std::string& origin) {
  std::vector<ModelledStep> model;
  for (const LoggedStep& step : steps) {
    model.push_back(modelled(deployment, fits, curves, step));
  }
  CorrectedEngine result{.before = deployment.engine, .after = deployment.engine, .predicted = {}, .corrected = {}};
  const auto [stream_factor, host_us] = fitted(model);
  result.after.stream_factor = rounded(stream_factor);
  result.after.host_us = rounded(host_us);
  result.after.measured_on = deployment.hardware.name;
  result.after.source = fmt::format("fitted to {} steps of {}", steps.size(), origin);

  // Each fold by constants that have not seen it.
  constexpr size_t kEnoughForFolds = 10;
  const size_t num_folds = steps.size() < kEnoughForFolds ? steps.size() : 5;
  std::vector<double> left_out_us(model.size());
  std::vector<double> abs_logs;
  for (size_t fold = 0; fold < num_folds; ++fold) {
    std::vector<ModelledStep> kept;
    for (size_t i = 0; i < model.size(); ++i) {
      if (i % num_folds != fold) {
        kept.push_back(model[i]);
      }
    }
    const auto [fold_factor, fold_host_us] = fitted(kept);
    for (size_t i = fold; i < model.size(); i += num_folds) {
      left_out_us[i] = model[i].predicted_us(fold_factor, fold_host_us);
      abs_logs.push_back(std::abs(std::log(left_out_us[i] / model[i].measured_us)));
    }
  }
  constexpr double kLeastSpread = 0.01;  // no two runs of an engine agree better
  result.after.log_spread = std::max(kLeastSpread, rounded(quantile(abs_logs, 0.9) / kNormal90));
  const EngineProfile& before = deployment.engine;
  for (size_t i = 0; i < model.size(); ++i) {
    result.predicted.push_back(
        comparison(model[i].predicted_us(before.stream_factor, before.host_us), before.log_spread, model[i]));
    result.corrected.push_back(comparison(left_out_us[i], result.after.log_spread, model[i]));
  }
  return result;
}

std::vector<Table> correction_tables(const CorrectedEngine& engine, const std::vector<LoggedStep>& steps) {
  Table constants{.name = "correction",
                  .title = fmt::format("Constants of {}: {}", engine.before.name, engine.after.source),
                  .columns = {{"constant", "constant"}, {"before", "before", {}, 1, 3}, {"after", "after", {}, 1, 3}}};
  constants.add({std::string("stream factor"), engine.before.stream_factor, engine.after.stream_factor});
  constants.add({std::string("host time of a step, us"), engine.before.host_us, engine.after.host_us});
  constants.add({std::string("spread of log(predicted / logged)"), engine.before.log_spread, engine.after.log_spread});
  Table errors{.name = "errors",
               .title = "Step time predicted against logged; after: every step by constants fitted without it",
               .columns = {{"constants", "constants"},
                           {"rows", "steps"},
                           {"median_abs_error_pct", "median error", "%", 1, 1},
                           {"p90_abs_error_pct", "p90 error", "%", 1, 1},
                           {"bias_pct", "bias", "%", 1, 1},
                           {"coverage_90_pct", "in 90 % interval", "%", 1, 1}}};
  const auto add_errors = [&](const char* name, const std::vector<Comparison>& comparisons) {
    const ErrorSummary summary = summarise(comparisons);
    errors.add({std::string(name),
                summary.rows,
                summary.median_abs_error_pct,
                summary.p90_abs_error_pct,
                summary.bias_pct,
                summary.coverage_90_pct});
  };
  add_errors("before", engine.predicted);
  add_errors("after", engine.corrected);
  Table each{.name = "steps",
             .title = "Every step",
             .columns = {{"sequences", "sequences of a DP rank", {}, 1, 0},
                         {"context_tokens", "cached tokens of each", {}, 1, 0},
                         {"step_ms", "logged", "ms", 1, 2},
                         {"before_ms", "before", "ms", 1, 2},
                         {"after_ms", "after", "ms", 1, 2},
                         {"error_pct", "error after", "%", 1, 1}}};
  for (size_t i = 0; i < steps.size(); ++i) {
    each.add({steps[i].sequences,
              steps[i].kv_len,
              steps[i].time_ms,
              engine.predicted[i].predicted,
              engine.corrected[i].predicted,
              engine.corrected[i].error_pct()});
  }
  return {std::move(constants), std::move(errors), std::move(each)};
}

}  // namespace simulator
