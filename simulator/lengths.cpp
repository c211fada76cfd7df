#include "simulator/lengths.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string>
#include <string_view>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/csv_table.hpp"

namespace simulator {
namespace {

size_t column_of(const CsvTable& table, const std::array<std::string_view, 2>& names) {
  for (const std::string_view name : names) {
    const auto found = std::ranges::find(table.columns, name);
    if (found != table.columns.end()) {
      return static_cast<size_t>(found - table.columns.begin());
    }
  }
  model::throw_input_error("{}: expected a column {} (or {})", table.path, names[0], names[1]);
}

std::vector<double> tokens_of(const CsvTable& table, const std::array<std::string_view, 2>& names) {
  constexpr double kMostTokens = 1 << 20;
  const size_t column = column_of(table, names);
  std::vector<double> lengths;
  for (const CsvRow& row : table.rows) {
    const std::string& cell = row.cells[column];
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !(value >= 1) || value > kMostTokens) {
      model::throw_input_error("{}:{}: {} is '{}', expected 1 to {} tokens",
                               table.path,
                               row.line,
                               table.columns[column],
                               model::printable(cell),
                               kMostTokens);
    }
    lengths.push_back(value);
  }
  return lengths;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double variation(const std::vector<double>& values) {
  const double middle = mean(values);
  double sum = 0;
  for (const double value : values) {
    sum += (value - middle) * (value - middle);
  }
  return std::sqrt(sum / static_cast<double>(values.size())) / middle;
}

// Means of up to 16 equal parts of the sorted lengths, over the mean of all.
std::vector<double> parts_of(std::vector<double> lengths) {
  constexpr size_t kMostParts = 16;
  std::ranges::sort(lengths);
  const double middle = mean(lengths);
  const size_t num_parts = std::min(kMostParts, lengths.size());
  std::vector<double> parts(num_parts, 0.0);
  // A length may lie in two parts.
  const double part_len = static_cast<double>(lengths.size()) / static_cast<double>(num_parts);
  for (size_t part = 0; part < num_parts; ++part) {
    const double begin = static_cast<double>(part) * part_len;
    for (auto i = static_cast<size_t>(begin); i < lengths.size(); ++i) {
      const double from = std::max(begin, static_cast<double>(i));
      const double to = std::min(begin + part_len, static_cast<double>(i + 1));
      if (to <= from) {
        break;
      }
      parts[part] += (to - from) * lengths[i] / part_len / middle;
    }
  }
  return parts;
}

}  // namespace

LengthShape log_normal_lengths(double prompt_cv, double answer_cv) {
  LengthShape shape{.prompt_cv = prompt_cv, .answer_cv = answer_cv};
  if (prompt_cv > 0) {
    constexpr std::array kQuantiles{-1.28155, -0.52440, 0.0, 0.52440, 1.28155};  // of the normal, at 0.1, 0.3, ..., 0.9
    const double sigma = std::sqrt(std::log1p(prompt_cv * prompt_cv));
    shape.prompt_parts.clear();
    for (const double quantile : kQuantiles) {
      shape.prompt_parts.push_back(std::exp(sigma * quantile));
    }
    const double middle = mean(shape.prompt_parts);
    for (double& part : shape.prompt_parts) {
      part /= middle;
    }
  }
  return shape;
}

MeasuredLengths read_lengths(const std::filesystem::path& path) {
  const CsvTable table = read_csv(path);
  const std::vector<double> prompts = tokens_of(table, {"prompt_tokens", "isl"});
  const std::vector<double> answers = tokens_of(table, {"answer_tokens", "osl"});
  if (prompts.empty()) {
    model::throw_input_error("{}: no request under the header", table.path);
  }
  MeasuredLengths lengths{.mean_prompt_tokens = mean(prompts), .mean_answer_tokens = mean(answers), .shape = {}};
  double prompts_met = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts_met += prompts[i] * answers[i] / static_cast<double>(prompts.size());
  }
  lengths.shape = {.prompt_parts = parts_of(prompts),
                   .prompt_cv = variation(prompts),
                   .answer_cv = variation(answers),
                   .decoding_prompt = prompts_met / (lengths.mean_prompt_tokens * lengths.mean_answer_tokens)};
  return lengths;
}

}  // namespace simulator
