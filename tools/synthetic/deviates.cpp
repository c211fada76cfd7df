#include "tools/synthetic/deviates.hpp"

#include <array>
#include <cmath>

#include "model/dtype.hpp"

namespace tools::synthetic {
namespace {

constexpr size_t kHalf = kNumDeviates / 2;

// The distribution function is integrated by Simpson's rule in steps of 2h, h = 2^-10, and taken as linear inside a step, which is
// right to 1.5e-7. The density at each point follows from its neighbour by a product:
// exp(-((k+1)h)^2/2) / exp(-(kh)^2/2) = exp(-h^2/2) * exp(-h^2)^k.
constexpr double kStep = 0x1p-10;
constexpr double kExpOfMinusStepSquared = 0x1.ffffe00001000p-1;      // exp(-2^-20)
constexpr double kExpOfMinusHalfStepSquared = 0x1.fffff00000400p-1;  // exp(-2^-21)
constexpr double kOneBySqrtTwoPi = 0x1.9884533d43651p-2;

// The upper half is computed, the lower one mirrors it.
std::array<double, kNumDeviates> make_deviates() {
  std::array<double, kNumDeviates> deviates{};
  double density = kOneBySqrtTwoPi;
  double ratio = kExpOfMinusHalfStepSquared;
  double probability = 0.5;
  int64_t steps = 0;
  for (size_t bits = kHalf; bits < kNumDeviates; ++bits) {
    const double wanted = (static_cast<double>(bits) + 0.5) / kNumDeviates;
    double area = 0;
    for (;;) {
      const double middle = density * ratio;
      const double next = middle * (ratio * kExpOfMinusStepSquared);
      area = (density + 4 * middle + next) * (kStep / 3);
      if (probability + area >= wanted) {
        break;
      }
      probability += area;
      density = next;
      ratio *= kExpOfMinusStepSquared * kExpOfMinusStepSquared;
      steps += 2;
    }
    deviates[bits] = (static_cast<double>(steps) + 2 * (wanted - probability) / area) * kStep;
    deviates[kNumDeviates - 1 - bits] = -deviates[bits];
  }
  return deviates;
}

// The deviates of the upper half ascend, so the nearest code does too.
std::array<uint8_t, kNumDeviates> make_codes() {
  constexpr double kClip = 3.9;
  std::array<uint8_t, kNumDeviates> codes{};
  uint8_t code = 0;
  for (size_t bits = kHalf; bits < kNumDeviates; ++bits) {
    const double value = 448 / kClip * normal_deviates()[bits];
    while (code < kLargestCode &&
           model::decode_f8_e4m3(static_cast<uint8_t>(code + 1)) - value < value - model::decode_f8_e4m3(code)) {
      ++code;
    }
    codes[bits] = code;
    codes[kNumDeviates - 1 - bits] = code | kSignBit;
  }
  return codes;
}

}  // namespace

std::span<const double, kNumDeviates> normal_deviates() {
  static const auto deviates = make_deviates();
  return deviates;
}

std::span<const uint8_t, kNumDeviates> normal_codes() {
  static const auto codes = make_codes();
  return codes;
}

double normal_code_std() {
  static const double value = [] {
    double sum = 0;
    for (const uint8_t code : normal_codes()) {
      const double number = model::decode_f8_e4m3(code);
      sum += number * number;
    }
    return std::sqrt(sum / kNumDeviates);
  }();
  return value;
}

}  // namespace tools::synthetic
