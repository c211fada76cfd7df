// The reference's linears on Hopper and Ampere against the device side's own model of a step, which shares no line with it: what a
// kernel gives in the emulation with that accumulation, mode `hopper` has to give.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "gpu/emulation/tensor_core.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/recipe_matmul.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu {
namespace {

using emulation::OperandFormat;
using emulation::TensorCoreStep;

constexpr int64_t kRows = 3;
constexpr int64_t kOutDim = 40;
constexpr int64_t kInDim = 512;

// Numbers of several binades, so that steps cut.
float number(std::mt19937& random) {
  std::normal_distribution<float> normal;
  return normal(random) * std::ldexp(1.0f, -static_cast<int>(random() % 8));
}

float half16(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000);
}

TEST(RecipeMatmul, Bf16_AgreesWithTheDeviceSidesChain) {
  std::mt19937 random(3);
  reference::HandMadeWeights weights;
  std::vector<uint16_t> codes;
  std::vector<float> w;
  for (int64_t i = 0; i < kOutDim * kInDim; ++i) {
    w.push_back(half16(number(random)));
    codes.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(w.back()) >> 16));
  }
  weights.set("w", model::make_tensor(model::DType::kBF16, {kOutDim, kInDim}, codes));
  reference::BlockedRows rows(kRows, kInDim);
  std::vector<std::vector<float>> x(kRows);
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t k = 0; k < kInDim; ++k) {
      x[static_cast<size_t>(m)].push_back(half16(number(random)));
    }
    rows.set(m, x[static_cast<size_t>(m)]);
  }
  const reference::WeightMatrix matrix(weights, "w");
  for (const auto& [name, step] :
       {std::pair{"hopper", emulation::kHopper16Bit}, std::pair{"ampere", emulation::kAmpere16Bit}}) {
    const auto got = recipe_matmul(*reference::tensor_core::find_linear_recipe(name), rows, matrix, 1);
    for (int64_t m = 0; m < kRows; ++m) {
      for (int64_t n = 0; n < kOutDim; ++n) {
        const auto row = std::span<const float>(w).subspan(static_cast<size_t>(n * kInDim), kInDim);
        ASSERT_EQ(got[static_cast<size_t>(m * kOutDim + n)],
                  tensor_core_chain(step, OperandFormat::kBf16, x[static_cast<size_t>(m)], row, 0))
            << name << " " << m << " " << n;
      }
    }
  }
}

TEST(RecipeMatmul, Fp8_AgreesWithTheDeviceSidesSteps_AndFmaPromotion) {
  std::mt19937 random(4);
  reference::HandMadeWeights weights;
  std::vector<uint8_t> codes;
  std::vector<float> w;
  for (int64_t i = 0; i < kOutDim * kInDim; ++i) {
    codes.push_back(static_cast<uint8_t>((random() % 127) | (random() & 0x80)));
    w.push_back(model::decode_f8_e4m3(codes.back()));
  }
  std::vector<float> w_scales{0.0137f, 0.031f, 0.0081f, 0.0229f};
  weights.set("w", model::make_tensor(model::DType::kF8E4M3, {kOutDim, kInDim}, codes));
  weights.set("w_scale_inv", model::make_tensor(model::DType::kF32, {1, 4}, w_scales));
  reference::BlockedRows rows(kRows, kInDim);
  for (int64_t m = 0; m < kRows; ++m) {
    std::vector<float> row;
    for (int64_t k = 0; k < kInDim; ++k) {
      row.push_back(number(random));
    }
    rows.set_quantised(m, row, {});
  }
  const reference::WeightMatrix matrix(weights, "w");
  const auto got = recipe_matmul(*reference::tensor_core::find_linear_recipe("hopper"), rows, matrix, 1);
  for (int64_t m = 0; m < kRows; ++m) {
    for (int64_t n = 0; n < kOutDim; ++n) {
      float sum = 0;
      for (int64_t b = 0; b < 4; ++b) {
        const std::span<const float> a(rows.block(b) + m * 128, 128);
        const auto block = std::span<const float>(w).subspan(static_cast<size_t>(n * kInDim + b * 128), 128);
        const float t = tensor_core_chain(emulation::kHopperWgmmaFp8, OperandFormat::kE4m3, a, block, 0);
        sum = std::fma(rows.scales(b)[m] * w_scales[static_cast<size_t>(b)], t, sum);
      }
      ASSERT_EQ(got[static_cast<size_t>(m * kOutDim + n)], sum) << m << " " << n;
    }
  }
}

}  // namespace
}  // namespace gpu
