#include "simulator/expert_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace simulator {
namespace {

constexpr double kTableWeights = 3.0 * 7168 * 2048;

double peak_tflops(const Hardware& hardware) {
  return hardware.fp8_dense_tflops ? hardware.fp8_dense_tflops->value : hardware.bf16_dense_tflops.value;
}

}  // namespace

double expert_time_us(const ExpertTimeFit& fit, const RankLoad& load, double num_tokens) {
  const double read = fit.us_per_expert * static_cast<double>(load.num_active_experts);
  const double multiply = fit.us_per_row * static_cast<double>(load.padded_rows);
  const double larger = std::max(read, multiply);
  const double smaller = std::min(read, multiply);
  const double both =
      larger > 0 ? larger * std::pow(1 + std::pow(smaller / larger, fit.exponent), 1 / fit.exponent) : 0.0;
  return std::max(fit.floor_us, fit.fixed_us + both + fit.us_per_token * num_tokens);
}

ExpertTimeModel expert_time_model(const Hardware& hardware,
                                  std::string_view kernel,
                                  const ExpertShape& shape,
                                  double num_tokens) {
  const ExpertTimeFit* nearest = nullptr;
  double nearest_distance = 0;
  for (const ExpertTimeFit& fit : expert_time_fits()) {
    if (fit.kernel != kernel) {
      continue;
    }
    const double rate = load_hardware(std::string(fit.hardware)).memory_gb_per_s.value;
    const double distance =
        fit.hardware == hardware.name ? -1 : std::abs(std::log(rate / hardware.memory_gb_per_s.value));
    if (nearest == nullptr || distance < nearest_distance) {
      nearest = &fit;
      nearest_distance = distance;
    }
  }
  if (nearest == nullptr) {
    model::throw_input_error("expert kernel {}: expected sglang-decode, sglang-prefill, trtllm-fp8 or trtllm-nvfp4",
                             model::printable(std::string(kernel)));
  }
  const bool is_measured = nearest->hardware == hardware.name;
  const Hardware fitted = load_hardware(std::string(nearest->hardware));
  ExpertTimeFit scaled = *nearest;
  const double size = shape.weights / kTableWeights;
  scaled.us_per_expert *= size;
  scaled.us_per_row *= size;
  if (!is_measured) {
    scaled.us_per_expert *= fitted.memory_gb_per_s.value / hardware.memory_gb_per_s.value;
    scaled.us_per_row *= peak_tflops(fitted) / peak_tflops(hardware);
  }
  return {
      .time = [scaled, num_tokens](const RankLoad& load) { return expert_time_us(scaled, load, num_tokens); },
      .source = fmt::format("fit to aiconfigurator@095f58a, {}, {}{}",
                            kernel,
                            nearest->hardware,
                            is_measured ? "" : fmt::format(", scaled to {} by memory rate and peak", hardware.name)),
      .is_measured = is_measured};
}

}  // namespace simulator
