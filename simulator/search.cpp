#include "simulator/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "model/check.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

constexpr double kSecondsPerHour = 3600;
constexpr double kMillion = 1e6;

// GPUs of one worker. With experts over more ranks than one TP group, attention is spread over dp groups.
std::vector<model::ParallelLayout> searched_layouts() {
  std::vector<model::ParallelLayout> layouts;
  for (const int64_t pp : {1, 2, 4}) {
    for (const int64_t tp : {1, 2, 4, 8, 16}) {
      layouts.push_back({.tp = tp, .ep = 1, .pp = pp});
    }
  }
  for (const int64_t ranks : {8, 16, 32, 64, 72, 96, 128, 144, 256, 320}) {
    for (const int64_t tp : {1, 2, 4, 8}) {
      layouts.push_back({.tp = tp, .ep = ranks, .dp = ranks / tp});
    }
  }
  return layouts;
}

DeploymentRequest request_of(const DeploymentRequest& base, const model::ParallelLayout& layout, double batch) {
  DeploymentRequest request = base;
  request.layout = {.tp = layout.tp, .ep = layout.ep, .dp = layout.dp};
  request.batch = batch;
  request.concurrency = std::nullopt;
  request.workers = std::nullopt;
  return request;
}

// The layout with redundant experts that make the slots divide: at least those asked for.
RankLayout laid_out(const Deployment& base, const model::ParallelLayout& layout, int64_t asked_redundant) {
  RankLayout rank = base.decode.rank;
  rank.layout = layout;
  const int64_t experts = rank.num_placed_experts(base.config);
  rank.redundant_experts = (experts + asked_redundant + layout.ep - 1) / layout.ep * layout.ep - experts;
  return rank;
}

// Only what the user chose for all layouts can be wrong for one of them: what is searched divides by itself.
void check_places(const Deployment& deployment) {
  const RankLayout& rank = deployment.decode.rank;
  if (rank.dense_tp || rank.shared_expert != SharedExpertPlace::kDefault) {
    check_rank(deployment.config, rank);
  }
}

// "8 GPUs would (tp8 pp1 dp1 ep1)".
std::string smallest_that_holds(const Deployment& base, int64_t asked_redundant) {
  std::optional<model::ParallelLayout> best;
  for (const model::ParallelLayout& layout : searched_layouts()) {
    const MemoryRequest request{.tokens_per_sequence = base.workload.prompt_tokens + base.workload.answer_tokens,
                                .prefill_chunk = base.workload.new_prompt_tokens(),
                                .memory_frac = base.memory_frac};
    const RankLayout rank = laid_out(base, layout, asked_redundant);
    if ((!best || layout.num_ranks() < best->num_ranks()) &&
        memory_budget(base.config, base.hardware, rank, request).max_sequences >= 1) {
      best = layout;
    }
  }
  return best ? fmt::format("{} GPUs would ({})", best->num_ranks(), layout_text(*best))
              : "more memory a GPU, or shorter prompts, would work";
}

// A layout for prompts, and what one worker of it lets through.
struct PrefillChoice {
  RankLayout rank;
  double prompts_per_s = 0;
};

std::vector<PrefillChoice> prefill_choices(const Deployment& base,
                                           int64_t asked_redundant,
                                           const std::vector<ChosenFit>& fits,
                                           MoeCurves& curves) {
  std::vector<PrefillChoice> choices;
  for (const model::ParallelLayout& layout : {model::ParallelLayout{.tp = 8},
                                              model::ParallelLayout{.ep = 8, .dp = 8},
                                              model::ParallelLayout{.ep = 16, .dp = 16},
                                              model::ParallelLayout{.ep = 32, .dp = 32}}) {
    Deployment deployment = base;
    deployment.decode_only = false;
    deployment.decode.workers = 1;
    deployment.decode.rank = laid_out(base, layout, asked_redundant);
    deployment.workload.concurrency = static_cast<double>(layout.dp);
    try {
      check_places(deployment);
      const Serving serving = serve(deployment, fits, curves);
      choices.push_back({deployment.decode.rank, static_cast<double>(layout.dp) * 1e6 / serving.prompt.total_us});
    } catch (const model::InputError&) {
      // The weights do not fit, or dense layers or the shared expert do not divide.
    }
  }
  return choices;
}

// As many decode workers as the GPUs hold beside the prefill workers that feed them. False: not one.
bool fill_gpus(Deployment& deployment, const PrefillChoice& prefill, double requests_per_s_of_worker, int64_t gpus) {
  constexpr double kMostBusy = 0.9;
  const int64_t decode_gpus = deployment.decode.rank.layout.num_ranks();
  const int64_t prefill_gpus = prefill.rank.layout.num_ranks();
  const auto prefill_workers = [&](int64_t workers) {
    const double needed = static_cast<double>(workers) * requests_per_s_of_worker / (kMostBusy * prefill.prompts_per_s);
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(needed)));
  };
  int64_t workers = gpus / decode_gpus;
  while (workers > 0 && workers * decode_gpus + prefill_workers(workers) * prefill_gpus > gpus) {
    --workers;
  }
  deployment.decode.workers = workers;
  deployment.prefill = Pool{.rank = prefill.rank, .workers = prefill_workers(std::max<int64_t>(1, workers))};
  return workers > 0;
}

bool is_better(const SearchPoint& left, const SearchPoint& right) {
  return std::pair(left.serving.tokens_per_s_per_user, left.serving.tokens_per_s_per_gpu) >
         std::pair(right.serving.tokens_per_s_per_user, right.serving.tokens_per_s_per_gpu);
}

double dollars_per_million(const Serving& serving, double dollars_per_gpu_hour) {
  return dollars_per_gpu_hour * kMillion / (serving.tokens_per_s_per_gpu * kSecondsPerHour);
}

}  // namespace

SearchResult search(const SearchRequest& request,
                    const std::vector<Calibration>& calibrations,
                    const HardwareChanges& changes,
                    MoeCurves& curves) {
  for (const int64_t gpus : request.gpus) {
    if (gpus < 1 || gpus > 1 << 20) {
      model::throw_input_error("--gpus {}: expected 1 to {}", gpus, 1 << 20);
    }
  }
  // Checks what the user said, once.
  DeploymentRequest asked = request_of(request.base, {.tp = 8}, 1);
  asked.dense_tp = std::nullopt;  // may suit other layouts
  Deployment base = build_deployment(asked);
  base.decode.rank.dense_tp = request.base.dense_tp;
  const std::vector<ChosenFit> fits = changed(choose_fits(calibrations, base.hardware), base.hardware, changes);
  base.hardware = changed(base.hardware, changes);
  const int64_t asked_redundant = request.base.redundant_experts.value_or(0);
  SearchResult result;
  std::vector<SearchPoint> points;
  std::optional<SearchPoint> closest;
  const auto consider = [&](const Deployment& deployment, const Serving& serving) {
    ++result.num_points;
    const bool keeps_limits = serving.ttft_ms <= request.most_ttft_ms.value_or(INFINITY) &&
                              serving.tpot_ms <= request.most_tpot_ms.value_or(INFINITY);
    if (keeps_limits) {
      points.push_back({deployment, serving});
    } else if (!closest || serving.tpot_ms + serving.ttft_ms < closest->serving.tpot_ms + closest->serving.ttft_ms) {
      closest = SearchPoint{deployment, serving};
    }
  };
  const std::vector<PrefillChoice> prefills =
      request.disaggregated ? prefill_choices(base, asked_redundant, fits, curves) : std::vector<PrefillChoice>{};
  for (const model::ParallelLayout& layout : searched_layouts()) {
    const int64_t ranks = layout.num_ranks();
    std::vector<int64_t> filled;
    std::ranges::copy_if(request.gpus, std::back_inserter(filled), [&](int64_t gpus) {
      return request.disaggregated ? gpus > ranks : gpus % ranks == 0;
    });
    if (filled.empty()) {
      continue;
    }
    const int64_t gpus = std::ranges::max(filled);
    Deployment deployment = base;
    deployment.decode.rank = laid_out(base, layout, asked_redundant);
    deployment.decode_only = deployment.decode_only || request.disaggregated;
    for (double batch = 1; batch <= 1024; batch *= 2) {
      deployment.decode.workers = 1;
      deployment.workload.concurrency = batch * static_cast<double>(layout.dp);
      const Serving serving = [&]() -> Serving {
        try {
          check_places(deployment);
          return serve(deployment, fits, curves);
        } catch (const model::InputError&) {
          return {};  // as above
        }
      }();
      if (serving.tpot_ms == 0 || serving.limit == Limit::kMemory) {
        break;  // a larger batch only waits
      }
      // Workers are alike: one more is as many more requests.
      const double requests_of_worker = deployment.workload.concurrency;
      for (const PrefillChoice& prefill : prefills) {
        Deployment fed = deployment;
        if (fill_gpus(fed, prefill, serving.requests_per_s, gpus)) {
          fed.decode_only = false;
          fed.workload.concurrency = requests_of_worker * static_cast<double>(fed.decode.workers);
          consider(fed, serve(fed, fits, curves));
        }
      }
      if (!request.disaggregated) {
        deployment.decode.workers = gpus / ranks;
        deployment.workload.concurrency = requests_of_worker * static_cast<double>(deployment.decode.workers);
        consider(deployment, serving);
      }
    }
  }
  if (points.empty()) {
    if (!closest) {
      model::throw_input_error("search: no layout of {} GPUs holds the weights on {}: {}",
                               fmt::join(request.gpus, ", "),
                               base.hardware.name,
                               smallest_that_holds(base, asked_redundant));
    }
    model::throw_input_error(
        "search: nothing keeps the limits; closest is {} at {:.1f} ms a token and {:.0f} ms to the first",
        layout_text(closest->deployment.decode.rank.layout),
        closest->serving.tpot_ms,
        closest->serving.ttft_ms);
  }
  std::ranges::stable_sort(points, is_better);
  double best = 0;
  for (SearchPoint& point : points) {
    if (point.serving.tokens_per_s_per_gpu > best) {
      best = point.serving.tokens_per_s_per_gpu;
      result.pareto.push_back(std::move(point));
    }
  }
  return result;
}

Table pareto_table(const SearchResult& result, double dollars_per_gpu_hour) {
  Table table{.name = "pareto",
              .title = fmt::format("Layouts that no other beats, of {} points; the last has most tokens/s a GPU",
                                   result.num_points),
              .columns = {{"parallel", "layout"},
                          {"workers", "workers"},
                          {"prefill", "prefill"},
                          {"num_total_gpus", "GPUs"},
                          {"bs", "sequences", "a DP rank", 1, 0},
                          {"concurrency", "requests", {}, 1, 0},
                          {"tokens_per_s_per_user", "tokens/s", "a user", 1, 1},
                          {"tokens_per_s_per_gpu", "tokens/s", "a GPU", 1, 1},
                          {"tpot_ms", "a token", "ms", 1, 2},
                          {"tpot_low_ms", "90 % from", "ms", 1, 2},
                          {"tpot_high_ms", "to", "ms", 1, 2},
                          {"ttft_ms", "first token", "ms", 1, 0},
                          {"memory_gb", "memory", "GB", 1, 1},
                          {"redundant_experts", "redundant", "experts"}}};
  if (dollars_per_gpu_hour > 0) {
    table.columns.push_back({"dollars_per_million_tokens", "$ for a million", "answer tokens", 1, 3});
  }
  for (const auto& [deployment, serving] : result.pareto) {
    const RankLayout& rank = deployment.decode.rank;
    std::vector<Cell> row{
        layout_text(rank.layout),
        deployment.decode.workers,
        deployment.prefill
            ? fmt::format("{} x {}", deployment.prefill->workers, layout_text(deployment.prefill->rank.layout))
            : std::string("-"),
        deployment.num_gpus(),
        serving.decode_sequences,
        deployment.workload.concurrency,
        serving.tokens_per_s_per_user,
        serving.tokens_per_s_per_gpu,
        serving.tpot_ms,
        serving.tpot_low_ms,
        serving.tpot_high_ms,
        serving.ttft_ms,
        serving.memory.total_bytes / 1e9,
        rank.redundant_experts};
    if (dollars_per_gpu_hour > 0) {
      row.emplace_back(dollars_per_million(serving, dollars_per_gpu_hour));
    }
    table.add(std::move(row));
  }
  return table;
}

std::string pareto_plot(const SearchResult& result) {
  constexpr int kWidth = 60;
  constexpr int kHeight = 14;
  const auto range = [&](double Serving::*member) {
    double low = INFINITY;
    double high = 0;
    for (const SearchPoint& point : result.pareto) {
      low = std::min(low, point.serving.*member);
      high = std::max(high, point.serving.*member);
    }
    return std::pair(low, high);
  };
  const auto [least_user, most_user] = range(&Serving::tokens_per_s_per_user);
  const auto [least_gpu, most_gpu] = range(&Serving::tokens_per_s_per_gpu);
  const auto place = [](double value, double low, double high, int length) {
    return high > low ? static_cast<size_t>(std::lround((length - 1) * std::log(value / low) / std::log(high / low)))
                      : size_t{0};
  };
  std::vector<std::string> lines(kHeight, std::string(kWidth, ' '));
  for (const SearchPoint& point : result.pareto) {
    const size_t up = place(point.serving.tokens_per_s_per_gpu, least_gpu, most_gpu, kHeight);
    const size_t right = place(point.serving.tokens_per_s_per_user, least_user, most_user, kWidth);
    lines[kHeight - 1 - up][right] = '*';
  }
  std::string plot = "tokens/s a GPU, both axes logarithmic\n";
  for (size_t line = 0; line < lines.size(); ++line) {
    const std::string label = line == 0             ? fmt::format("{:.0f}", most_gpu)
                              : line == kHeight - 1 ? fmt::format("{:.0f}", least_gpu)
                                                    : "";
    plot += fmt::format("{:>8} |{}\n", label, lines[line].substr(0, lines[line].find_last_not_of(' ') + 1));
  }
  plot += fmt::format(
      "{:>8} +{}\n{:>10}{:<30.0f}{:>30.0f} tokens/s a user\n", "", std::string(kWidth, '-'), "", least_user, most_user);
  return plot;
}

}  // namespace simulator
