#include "simulator/skew.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/expert_loads.hpp"

namespace simulator {
namespace {

constexpr std::string_view kForms =
    "balanced, lognormal:SIGMA, powerlaw:ALPHA, gini:G (between 0 and 1), file:LOADS or trace:ROUTING";

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::vector<double> normalised(std::vector<double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  CHECK(sum > 0);
  for (double& weight : weights) {
    weight /= sum;
  }
  return weights;
}

// Inverse of the normal distribution function by bisection: used once for a whole deployment.
double normal_quantile(double probability) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return low;
}

// A log-normal's Gini coefficient is 2 Phi(sigma / sqrt(2)) - 1.
double sigma_of_gini(double gini) {
  return std::sqrt(2.0) * normal_quantile(0.5 * (gini + 1));
}

// Weights between `low` and `high` with density x^-alpha (inverse of the distribution function).
double power_law_weight(double alpha, double low, double high, double uniform) {
  if (std::abs(alpha - 1) < 1e-9) {
    return low * std::pow(high / low, uniform);
  }
  const double power = 1 - alpha;
  const double low_power = std::pow(low, power);
  return std::pow((std::pow(high, power) - low_power) * uniform + low_power, 1 / power);
}

std::vector<double> from_loads(const Skew& skew, int64_t num_experts, int64_t layer_idx) {
  const auto& layer = skew.loads[static_cast<size_t>(layer_idx) % skew.loads.size()];
  if (static_cast<int64_t>(layer.size()) != num_experts) {
    model::throw_input_error(
        "--skew: its loads are of {} experts, but the model has {} in a layer", layer.size(), num_experts);
  }
  return normalised(layer);
}

}  // namespace

Skew parse_skew(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const std::string rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (text == "balanced" || text == "uniform") {
    return {.family = SkewFamily::kBalanced, .parameter = 0};
  }
  if (name == "file" && !rest.empty()) {
    return {.family = SkewFamily::kLoads, .parameter = 0, .loads = read_expert_loads(rest)};
  }
  if (name == "trace" && !rest.empty()) {
    return {.family = SkewFamily::kLoads, .parameter = 0, .loads = read_routing_trace(rest)};
  }
  const std::optional<double> number = parse_number(rest);
  if (number && name == "lognormal" && *number >= 0 && *number <= 5) {
    return {.family = SkewFamily::kLogNormal, .parameter = *number};
  }
  if (number && name == "powerlaw" && *number > 0 && *number <= 5) {
    return {.family = SkewFamily::kPowerLaw, .parameter = *number};
  }
  if (number && name == "gini" && *number >= 0 && *number < 1) {
    return {.family = SkewFamily::kGini, .parameter = *number};
  }
  model::throw_input_error("--skew {}: expected {}", model::printable(text), kForms);
}

std::string skew_text(const Skew& skew) {
  switch (skew.family) {
    case SkewFamily::kBalanced: return "balanced";
    case SkewFamily::kLogNormal: return fmt::format("lognormal:{}", skew.parameter);
    case SkewFamily::kPowerLaw: return fmt::format("powerlaw:{}", skew.parameter);
    case SkewFamily::kGini: return fmt::format("gini:{}", skew.parameter);
    case SkewFamily::kLoads: return fmt::format("measured loads of {} layers", skew.loads.size());
  }
  CHECK(false);
  return {};
}

std::vector<double> layer_popularity(const Skew& skew,
                                     int64_t num_experts,
                                     int64_t experts_per_token,
                                     int64_t num_tokens,
                                     int64_t layer_idx,
                                     uint64_t seed) {
  return model_popularity(skew, num_experts, experts_per_token, num_tokens, layer_idx + 1, 0, seed).back();
}

std::vector<std::vector<double>> model_popularity(const Skew& skew,
                                                  int64_t num_experts,
                                                  int64_t experts_per_token,
                                                  int64_t num_tokens,
                                                  int64_t num_layers,
                                                  double layer_correlation,
                                                  uint64_t seed) {
  CHECK(num_experts > 0 && num_tokens > 0 && layer_correlation >= 0 && layer_correlation <= 1);
  constexpr int64_t kStream = 1;
  const double sigma = skew.family == SkewFamily::kGini ? sigma_of_gini(skew.parameter) : skew.parameter;
  const bool is_sparse = num_tokens * experts_per_token <= num_experts;
  const double low = is_sparse ? 0.01 : 1;
  const double high = is_sparse ? 2 : std::max(0.8 * static_cast<double>(num_tokens), 1.0);
  std::vector<std::vector<double>> layers;
  std::vector<double> log_weights(static_cast<size_t>(num_experts), 0.0);  // in units of sigma
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    CounterRandom random(seed, kStream, layer);
    std::vector<double> weights(static_cast<size_t>(num_experts), 1.0);
    if (skew.family == SkewFamily::kLoads) {
      weights = from_loads(skew, num_experts, layer);
    } else if (skew.family == SkewFamily::kPowerLaw) {
      for (double& weight : weights) {
        weight = power_law_weight(skew.parameter, low, high, random.uniform());
      }
    } else if (skew.family != SkewFamily::kBalanced) {
      const double kept = layer == 0 ? 0 : layer_correlation;
      for (size_t expert = 0; expert < weights.size(); ++expert) {
        log_weights[expert] = kept * log_weights[expert] + std::sqrt(1 - kept * kept) * random.normal();
        weights[expert] = std::exp(sigma * log_weights[expert]);
      }
    }
    layers.push_back(normalised(std::move(weights)));
  }
  return layers;
}

std::vector<double> drifted(const std::vector<double>& popularity, double correlation, CounterRandom& random) {
  CHECK(correlation >= 0 && correlation <= 1);
  // Experts that nobody chose have no logarithm; they keep half the smallest share.
  double smallest = 1;
  for (const double share : popularity) {
    smallest = share > 0 ? std::min(smallest, share) : smallest;
  }
  std::vector<double> logs;
  for (const double share : popularity) {
    logs.push_back(std::log(share > 0 ? share : 0.5 * smallest));
  }
  const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size());
  double variance = 0;
  for (const double value : logs) {
    variance += (value - mean) * (value - mean) / static_cast<double>(logs.size());
  }
  const double fresh = std::sqrt((1 - correlation * correlation) * variance);
  for (double& value : logs) {
    value = std::exp(mean + correlation * (value - mean) + fresh * random.normal());
  }
  return normalised(std::move(logs));
}

std::vector<double> seen_popularity(const std::vector<double>& coming,
                                    double correlation,
                                    int64_t layer_idx,
                                    uint64_t seed) {
  constexpr int64_t kStream = 5;
  if (correlation == 1) {
    return coming;
  }
  CounterRandom random(seed, kStream, layer_idx);
  return drifted(coming, correlation, random);
}

}  // namespace simulator
