#include "simulator/expert_share.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "model/check.hpp"

namespace simulator {
namespace {

constexpr int kLayers = 24;

// Chances that a token chooses each expert: proportional to popularity, at most 1, adding up to k.
std::vector<double> chosen_chances(const std::vector<double>& popularity, double k) {
  std::vector<double> chances(popularity.size());
  double scale = k / std::accumulate(popularity.begin(), popularity.end(), 0.0);
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    double sum = 0;
    for (size_t i = 0; i < chances.size(); ++i) {
      chances[i] = std::min(1.0, scale * popularity[i]);
      sum += chances[i];
    }
    scale *= k / sum;
  }
  return chances;
}

// Box-Muller on raw engine output: the standard distributions differ between libraries.
double normal(std::mt19937_64& engine) {
  constexpr double kTwoTo53 = 9007199254740992.0;
  const double u = (static_cast<double>(engine() >> 11) + 0.5) / kTwoTo53;
  const double v = static_cast<double>(engine() >> 11) / kTwoTo53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
}

std::vector<std::vector<double>> draw_layers(int64_t num_experts, int64_t k, double sigma) {
  std::mt19937_64 engine(20260101);
  std::vector<std::vector<double>> layers;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<double> popularity(static_cast<size_t>(num_experts));
    for (double& value : popularity) {
      value = std::exp(sigma * normal(engine));
    }
    layers.push_back(chosen_chances(popularity, static_cast<double>(k)));
  }
  return layers;
}

}  // namespace

ExpertShares::ExpertShares(double sigma) : sigma_(sigma) {}

const ExpertShare& ExpertShares::share(const ExpertGroup& group, double num_tokens) {
  CHECK(num_tokens > 0 && group.num_ranks > 0 && group.num_experts > 0);
  constexpr double kSteps = 64;  // per factor e: 1.6 % apart, far below the spread of popularity
  const auto step = static_cast<int64_t>(std::llround(kSteps * std::log(num_tokens)));
  const Key key{
      group.num_experts, group.experts_per_token, group.num_ranks, group.redundant_slots, group.balanced, step};
  if (const auto known = known_.find(key); known != known_.end()) {
    return known->second;
  }
  auto& layers = chances_[{group.num_experts, group.experts_per_token}];
  if (layers.empty()) {
    layers = draw_layers(group.num_experts, group.experts_per_token, sigma_);
  }
  const double tokens = std::exp(static_cast<double>(step) / kSteps);
  ExpertShare share;
  for (const std::vector<double>& chances : layers) {
    std::vector<double> active(static_cast<size_t>(group.num_ranks), 0.0);
    std::vector<double> copies(active.size(), 0.0);
    for (size_t expert = 0; expert < chances.size(); ++expert) {
      const size_t rank = expert * active.size() / chances.size();
      active[rank] += 1 - std::exp(tokens * std::log1p(-std::min(chances[expert], 1 - 1e-12)));
      copies[rank] += tokens * chances[expert];
    }
    const double ranks = static_cast<double>(active.size());
    share.mean_active += std::accumulate(active.begin(), active.end(), 0.0) / ranks;
    share.mean_copies += std::accumulate(copies.begin(), copies.end(), 0.0) / ranks;
    share.active += *std::ranges::max_element(active);
    share.copies += *std::ranges::max_element(copies);
  }
  for (double ExpertShare::*part :
       {&ExpertShare::active, &ExpertShare::copies, &ExpertShare::mean_active, &ExpertShare::mean_copies}) {
    share.*part /= kLayers;
  }
  if (group.balanced) {
    // Published for R1 at EP32 with 288 slots: the fullest rank holds 1.109 of the mean (TensorRT-LLM blog 4). Slots beyond the
    // experts are read as well once they have a token.
    constexpr double kFullest = 1.109;
    const double slots = static_cast<double>(group.num_experts + group.redundant_slots);
    const double more = slots / static_cast<double>(group.num_experts);
    share.copies = group.num_ranks > 1 ? std::min(share.copies, kFullest * share.mean_copies) : share.copies;
    share.active = std::min(share.mean_active * more, slots / static_cast<double>(group.num_ranks));
  }
  return known_.emplace(key, share).first->second;
}

}  // namespace simulator
