// Expert times against the published wide-EP tables: shipped fits, and fits that have not seen an EP size.
#include "simulator/expert_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>

#include "simulator/alltoall_validation.hpp"
#include "simulator/csv_table.hpp"
#include "simulator/eplb.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/skew.hpp"
#include "tests/shared_data.hpp"

namespace simulator {
namespace {

struct Measured {
  std::string series;  // GPU and kernel
  int64_t num_ranks = 0;
  double num_tokens = 0;
  std::vector<RankLoad> draws;  // the hottest rank's load, several times
  double measured_us = 0;
};

RankLoad load_of(const std::vector<double>& rows) {
  RankLoad load;
  for (const double slot_rows : rows) {
    const auto count = static_cast<int64_t>(slot_rows);
    load.num_tokens += count;
    load.num_active_experts += count > 0 ? 1 : 0;
    load.padded_rows += (count + kTileRows - 1) / kTileRows * kTileRows;
  }
  return load;
}

// Copies of each expert as aiconfigurator's collector draws them (simulator.md C3): weights scaled to tokens * 8, at most one copy of a
// token, rounded; uniform: equal counts, a remainder spread evenly.
std::vector<double> drawn_counts(const std::string& distribution, int64_t tokens, uint64_t seed) {
  std::vector<double> counts(256, 0.0);
  if (distribution == "uniform") {
    for (size_t expert = 0; expert < 256; ++expert) {
      const auto before = static_cast<int64_t>(expert) * tokens * 8 / 256;
      const auto after = (static_cast<int64_t>(expert) + 1) * tokens * 8 / 256;
      counts[expert] = static_cast<double>(after - before);
    }
    return counts;
  }
  const std::string alpha = distribution.substr(10, distribution.find('_', 10) - 10);  // power_law_1.01_eplb
  const auto shares = layer_popularity(parse_skew("powerlaw:" + alpha), 256, 8, tokens, 0, seed);
  for (size_t expert = 0; expert < 256; ++expert) {
    counts[expert] =
        std::min(std::round(shares[expert] * static_cast<double>(tokens * 8)), static_cast<double>(tokens));
  }
  return counts;
}

// The kernel is timed on the hottest rank.
RankLoad hottest(const std::string& distribution, int64_t tokens, int64_t ranks, int64_t slots, uint64_t seed) {
  const std::vector<double> counts = drawn_counts(distribution, tokens, seed);
  const Placement placement = distribution.ends_with("_eplb")
                                  ? eplb_placement(counts, {.num_slots = slots, .num_ranks = ranks})
                                  : contiguous_placement(256, ranks, 256, false);
  const auto loads = rank_loads(counts, placement);
  const int64_t rank = std::ranges::max_element(loads) - loads.begin();
  std::vector<double> copies(256, 0.0);
  for (const int64_t expert : placement.expert_of_slot) {
    copies[static_cast<size_t>(expert)] += 1;
  }
  std::vector<double> rows;
  for (int64_t slot = rank * placement.slots_per_rank(); slot < (rank + 1) * placement.slots_per_rank(); ++slot) {
    const auto expert = static_cast<size_t>(placement.expert_of_slot[static_cast<size_t>(slot)]);
    rows.push_back(std::round(counts[expert] / copies[expert]));
  }
  return load_of(rows);
}

std::vector<Measured> read(const std::filesystem::path& path) {
  const CsvTable csv = read_csv(path);
  const auto column = [&](const char* name) -> size_t {
    return static_cast<size_t>(std::ranges::find(csv.columns, name) - csv.columns.begin());
  };
  const bool is_trtllm = column("num_slots") < csv.columns.size();
  std::map<std::tuple<std::string, int64_t, int64_t, int64_t>, std::vector<RankLoad>> seen;
  std::vector<Measured> rows;
  for (const CsvRow& row : csv.rows) {
    const auto& cells = row.cells;
    const int64_t tokens = std::stoll(cells[column(is_trtllm ? "num_tokens_total" : "num_tokens_tag")]);
    const int64_t ranks = std::stoll(cells[column("ep_size")]);
    const int64_t slots = is_trtllm ? std::stoll(cells[column("num_slots")]) : 256;
    const std::string& distribution = cells[column("routing_distribution")];
    auto& draws = seen[{distribution, tokens, ranks, slots}];
    const int num_draws = distribution == "uniform" ? 1 : distribution.ends_with("_eplb") ? 4 : 12;
    for (int i = static_cast<int>(draws.size()); i < num_draws; ++i) {
      draws.push_back(hottest(distribution, tokens, ranks, slots, static_cast<uint64_t>(i)));
    }
    std::string kernel = "sglang-decode";
    if (is_trtllm) {
      kernel = cells[column("dtype")] == "nvfp4" ? "trtllm-nvfp4" : "trtllm-fp8";
    } else if (cells[column("phase")] == "context") {
      kernel = "sglang-prefill";
    }
    rows.push_back({.series = hardware_of_gpu_name(cells[column("gpu")]) + " " + kernel,
                    .num_ranks = ranks,
                    .num_tokens = static_cast<double>(tokens),
                    .draws = draws,
                    .measured_us = std::stod(cells[column("latency_us")])});
  }
  return rows;
}

double predicted_us(const ExpertTimeFit& fit, const Measured& row) {
  double sum = 0;
  for (const RankLoad& load : row.draws) {
    sum += expert_time_us(fit, load, row.num_tokens);
  }
  return sum / static_cast<double>(row.draws.size());
}

// Mean over rows of the soft absolute value of the log error.
double loss(const ExpertTimeFit& fit, const std::vector<const Measured*>& rows) {
  double sum = 0;
  for (const Measured* row : rows) {
    const double error = std::log(predicted_us(fit, *row) / row->measured_us) / 0.1;
    sum += std::sqrt(1 + error * error) - 1;
  }
  return sum / static_cast<double>(rows.size());
}

// Coordinate search in the logarithm of each constant, from a start that knows nothing of the GPU.
ExpertTimeFit fitted(const std::vector<const Measured*>& rows, bool is_prefill) {
  ExpertTimeFit best{"", "", 40, 10, 0.06, 1.5, is_prefill ? 0.006 : 0, is_prefill ? 400.0 : 0};
  double best_loss = loss(best, rows);
  const std::array<double ExpertTimeFit::*, 6> constants{&ExpertTimeFit::fixed_us,
                                                         &ExpertTimeFit::us_per_expert,
                                                         &ExpertTimeFit::us_per_row,
                                                         &ExpertTimeFit::exponent,
                                                         &ExpertTimeFit::us_per_token,
                                                         &ExpertTimeFit::floor_us};
  for (double factor = 1.5; factor > 1.01;) {
    bool is_better = false;
    for (double ExpertTimeFit::*constant : constants) {
      for (const double change : {factor, 1 / factor}) {
        ExpertTimeFit trial = best;
        trial.*constant *= change;
        trial.exponent = std::max(trial.exponent, 1.0);
        const double trial_loss = loss(trial, rows);
        if (trial_loss < best_loss) {
          best = trial;
          best_loss = trial_loss;
          is_better = true;
        }
      }
    }
    factor = is_better ? factor : std::sqrt(factor);
  }
  return best;
}

// The bar: 12 % median on EP sizes that the fit has not seen.
void check_ep_sizes_left_out(const std::vector<Measured>& rows) {
  std::map<std::string, std::vector<double>> errors;
  std::set<std::pair<std::string, int64_t>> cases;
  for (const Measured& row : rows) {
    cases.insert({row.series, row.num_ranks});
  }
  for (const auto& [series, ranks] : cases) {
    std::vector<const Measured*> others;
    for (const Measured& row : rows) {
      if (row.series == series && row.num_ranks != ranks) {
        others.push_back(&row);
      }
    }
    const ExpertTimeFit fit = fitted(others, series.ends_with("prefill"));
    for (const Measured& row : rows) {
      if (row.series == series && row.num_ranks == ranks) {
        errors[series].push_back(100 * std::abs(predicted_us(fit, row) / row.measured_us - 1));
      }
    }
  }
  for (const auto& [series, list] : errors) {
    std::printf("%s: EP sizes left out: median %.1f %%, p90 %.1f %%\n",
                series.c_str(),
                quantile(list, 0.5),
                quantile(list, 0.9));
    EXPECT_LE(quantile(list, 0.5), 12) << series;
  }
}

void check_shipped(const std::vector<Measured>& rows) {
  std::map<std::string, std::vector<double>> errors;
  for (const Measured& row : rows) {
    for (const ExpertTimeFit& fit : expert_time_fits()) {
      if (row.series == std::string(fit.hardware) + " " + std::string(fit.kernel)) {
        errors[row.series].push_back(100 * std::abs(predicted_us(fit, row) / row.measured_us - 1));
      }
    }
  }
  EXPECT_EQ(errors.size(),
            std::set<std::string>([&] {
              std::set<std::string> all;
              for (const Measured& row : rows) {
                all.insert(row.series);
              }
              return all;
            }())
                .size())
      << "a series without a fit";
  for (const auto& [series, list] : errors) {
    std::printf("%s: shipped: median %.1f %%, p90 %.1f %%\n", series.c_str(), quantile(list, 0.5), quantile(list, 0.9));
    EXPECT_LE(quantile(list, 0.5), 12) << series;
  }
}

TEST(ExpertTimeOracle, SglangWideEp) {
  const auto path = shared_data("measurements/wideep_moe_compute_skew.csv");
  SKIP_UNLESS_THERE(path);
  const auto rows = read(*path);
  check_shipped(rows);
  check_ep_sizes_left_out(rows);
}

TEST(ExpertTimeOracle, TrtllmWideEpWithEplb) {
  const auto path = shared_data("measurements/trtllm_wideep_moe_eplb.csv");
  SKIP_UNLESS_THERE(path);
  const auto rows = read(*path);
  check_shipped(rows);
  check_ep_sizes_left_out(rows);
}

}  // namespace
}  // namespace simulator
