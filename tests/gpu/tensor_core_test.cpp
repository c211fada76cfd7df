// The tensor core model against known answers and, where present, against vectors that were measured on hardware.
#include "gpu/emulation/tensor_core.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "gpu/emulation/tile_product.hpp"
#include "model/dtype.hpp"

namespace gpu::emulation {
namespace {

struct Product {
  int k;
  float a;
  float b;
};

// One instruction of depth `depth` with the given products, all else 0; the result's bits.
uint32_t run(
    const TensorCoreStep& step, OperandFormat format, int depth, float c, const std::vector<Product>& products) {
  std::vector<float> a(static_cast<size_t>(depth), 0);
  std::vector<float> b(static_cast<size_t>(depth), 0);
  for (const auto& product : products) {
    a[static_cast<size_t>(product.k)] = product.a;
    b[static_cast<size_t>(product.k)] = product.b;
  }
  return std::bit_cast<uint32_t>(tensor_core_chain(step, format, a, b, c));
}

std::vector<Product> repeated(int count, float a, float b) {
  std::vector<Product> products;
  for (int k = 0; k < count; ++k) {
    products.push_back({k, a, b});
  }
  return products;
}

struct Known {
  float c;
  std::vector<Product> products;
  uint32_t ampere;
  uint32_t hopper;
};

// BF16, one m16n8k16. Source: worked out with the published model, docs/gpu.md.
TEST(TensorCore, KnownAnswersOfBf16) {
  std::vector<Product> cancelling = repeated(7, 1, 1);
  cancelling.push_back({7, -0x1p13f, 0x1p12f});
  const std::vector<Known> answers = {
      {1, repeated(2, 0x1p-12f, 0x1p-12f), 0x3f800001, 0x3f800001},
      {1, repeated(4, 0x1p-12f, 0x1p-13f), 0x3f800000, 0x3f800001},
      {1, repeated(8, 0x1p-13f, 0x1p-13f), 0x3f800000, 0x3f800000},
      {0x1p25f, cancelling, 0x00000000, 0x40e00000},
      {0, {{0, 1.5f, 1.5f}, {1, -0x1p-12f, 0x1p-13f}}, 0x40100000, 0x400fffff},
      {1, {{0, 0x1p-12f, 0x1p-12f}, {8, 0x1p-12f, 0x1p-12f}}, 0x3f800000, 0x3f800001},
      {-1, repeated(3, -0x1p-12f, 0x1p-12f), 0xbf800001, 0xbf800001},
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    const Known& known = answers[i];
    EXPECT_EQ(run(kAmpere16Bit, OperandFormat::kBf16, 16, known.c, known.products), known.ampere) << "answer " << i;
    EXPECT_EQ(run(kHopper16Bit, OperandFormat::kBf16, 16, known.c, known.products), known.hopper) << "answer " << i;
  }
}

// E4M3 by wgmma: the accumulator loses its last ten bits even when nothing is added.
TEST(TensorCore, KnownAnswersOfE4m3) {
  std::vector<Product> small = repeated(17, 0x1p-3f, 0x1p-3f);
  small[0] = {0, 256, 1};
  const std::vector<Product> two_small = {{0, 1, 1}, {1, 0x1p-7f, 0x1p-7f}, {2, 0x1p-7f, 0x1p-7f}};
  for (const auto& step : {kHopperWgmmaFp8, kAdaMmaFp8}) {
    EXPECT_EQ(run(step, OperandFormat::kE4m3, 32, 1 + 0x1p-14f, {}), 0x3f800000U);
    EXPECT_EQ(run(step, OperandFormat::kE4m3, 32, 0, two_small), 0x3f800000U);
    EXPECT_EQ(run(step, OperandFormat::kE4m3, 32, 0, {{0, 1.5f, 1.5f}, {1, -0x1p-7f, 0x1p-6f}}), 0x400ffc00U);
    EXPECT_EQ(run(step, OperandFormat::kE4m3, 32, 0, small), 0x43800000U);
  }
}

// All codes of FP16 in one tile: number i of b has code i.
TEST(TensorCore, OperandsInFp16_AreTheNumbersOfTheirCodes) {
  constexpr uint32_t kColumns = 8;
  constexpr uint32_t kCodes = 0x10000;
  TileProduct tile;
  tile.resize(16, kColumns, kCodes / (2 * kColumns), OperandFormat::kFp16);
  for (uint32_t i = 0; i < kCodes / 2; ++i) {
    const uint32_t low = i / kColumns * 2 * kColumns + i % kColumns;  // the high half is the next k of the same column
    tile.b_words[i] = low | (low + kColumns) << 16;
  }
  tile.decode(OperandFormat::kFp16);
  for (uint32_t i = 0; i < kCodes; ++i) {
    const auto code = static_cast<uint16_t>(i);
    const double expected = model::decode(model::DType::kF16, reinterpret_cast<const std::byte*>(&code));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(tile.b[i])) << i;
      continue;
    }
    ASSERT_EQ(tile.b[i], expected) << i;
    ASSERT_EQ(std::signbit(tile.b[i]), std::signbit(expected)) << i;
  }
}

TEST(TensorCore, SpecialOperands) {
  const float infinity = HUGE_VALF;
  const auto one = [](float a, float b, float c) {
    return run(kHopper16Bit, OperandFormat::kBf16, 16, c, {{0, a, b}});
  };
  EXPECT_EQ(one(infinity, 0, 0), 0x7FFFFFFFU);
  EXPECT_EQ(one(infinity, 1, -infinity), 0x7FFFFFFFU);
  EXPECT_EQ(one(std::nanf(""), 1, 0), 0x7FFFFFFFU);
  EXPECT_EQ(one(infinity, -2, 5), std::bit_cast<uint32_t>(-infinity));
  EXPECT_EQ(one(0, 5, 0), 0U);
  EXPECT_EQ(one(1, -1, 1), 0U);  // cancels to plus zero
}

}  // namespace
}  // namespace gpu::emulation
