#include "tools/synthetic/deviates.hpp"

#include <array>
#include <cmath>

#include "model/check.hpp"
#include "model/dtype.hpp"

namespace tools::synthetic {
namespace {

constexpr int kNumBits = 1 << 16;
constexpr int kHalf = kNumBits / 2;

// The distribution function is integrated by Simpson's rule in steps of 2h, h = 2^-10. The density follows from its neighbour by a product, because
// exp(-((k+1)h)^2/2) / exp(-(kh)^2/2) = exp(-h^2/2) * exp(-h^2)^k; after 4600 steps the error is below 1e-9.
constexpr double kStep = 0x1p-10;
constexpr double kExpOfMinusStepSquared = 0x1.ffffe00001000p-1;      // exp(-2^-20)
constexpr double kExpOfMinusHalfStepSquared = 0x1.fffff00000400p-1;  // exp(-2^-21)
constexpr double kOneBySqrtTwoPi = 0x1.9884533d43651p-2;

// Quantiles of the upper half: entry i belongs to the probability (kHalf + i + 1/2) / kNumBits.
std::array<double, kHalf> upper_quantiles() {
  std::array<double, kHalf> quantiles{};
  double density = kOneBySqrtTwoPi;
  double ratio = kExpOfMinusHalfStepSquared;
  double probability = 0.5;
  int64_t steps = 0;
  for (int i = 0; i < kHalf; ++i) {
    const double wanted = (kHalf + i + 0.5) / kNumBits;
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
    quantiles[static_cast<size_t>(i)] =
        (static_cast<double>(steps) + 2 * (wanted - probability) / area) * kStep;
  }
  return quantiles;
}

// Codes of the upper half. The deviates ascend, so the nearest code does too.
std::array<uint8_t, kHalf> upper_codes() {
  constexpr double kClip = 3.9;  // deviates beyond are stored as 448: about one in 10,000
  std::array<uint8_t, kHalf> codes{};
  uint8_t code = 0;
  for (int i = 0; i < kHalf; ++i) {
    const double value = 448 / kClip * normal_deviate(static_cast<uint16_t>(kHalf + i));
    while (code < kLargestCode &&
           model::decode_f8_e4m3(static_cast<uint8_t>(code + 1)) - value < value - model::decode_f8_e4m3(code)) {
      ++code;
    }
    codes[static_cast<size_t>(i)] = code;
  }
  return codes;
}

}  // namespace

double normal_deviate(uint16_t bits) {
  static const auto upper = upper_quantiles();
  return bits >= kHalf ? upper[bits - kHalf] : -upper[kHalf - 1 - bits];
}

uint8_t normal_code(uint16_t bits) {
  static const auto upper = upper_codes();
  return bits >= kHalf ? upper[bits - kHalf] : static_cast<uint8_t>(upper[kHalf - 1 - bits] | kSignBit);
}

double normal_code_std() {
  static const double value = [] {
    double sum = 0;
    for (int bits = 0; bits < kNumBits; ++bits) {
      const double number = model::decode_f8_e4m3(normal_code(static_cast<uint16_t>(bits)));
      sum += number * number;
    }
    return std::sqrt(sum / kNumBits);
  }();
  return value;
}

}  // namespace tools::synthetic
