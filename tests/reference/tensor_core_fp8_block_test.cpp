// The fast FP8 block against the integers that define it.
#include "reference/tensor_core/fp8_block.hpp"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cfenv>
#include <memory>
#include <random>
#include <vector>

#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {
namespace {

struct Kernel {
  const char* name;
  Fp8BlockKernel run;
  bool supported;
};

std::vector<Kernel> kernels() {
  std::vector<Kernel> list{{"portable", fp8_block_portable, true}};
#if defined(__x86_64__)
  list.push_back({"avx2", fp8_block_avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")});
  list.push_back({"avx512", fp8_block_avx512, __builtin_cpu_supports("avx512f") != 0});
#endif
  return list;
}

uint8_t draw(std::mt19937& random, int kind) {
  const uint32_t code = random();
  const uint32_t sign = code & 0x80;
  uint32_t magnitude = code & 0x7F;
  switch (kind) {
    case 0: break;                                                    // anything
    case 1: magnitude %= 9; break;                                    // zeros and subnormals
    case 2: magnitude = 0x38 + magnitude % 3; break;                  // of one size: cancellation
    case 3: magnitude = code % 5 != 0 ? magnitude % 2 : 0x7E; break;  // the largest beside the smallest
    default: magnitude = code % 3 == 0 ? 0x78 + magnitude % 7 : 0;    // zeros beside large ones
  }
  return static_cast<uint8_t>(sign | (magnitude == 0x7F ? 0x7E : magnitude));
}

TEST(TensorCoreFp8Block, Kernels_HaveTheBitsOfTheDefinition) {
  std::mt19937 random(7);
  const Path& wgmma = *paths_for(find_recipe("hopper"), Format::kE4m3)[0];
  auto tile = std::make_unique<Fp8Tile>();
  Fp8Block block;
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<uint8_t>> weights(kFp8TileCols);
    std::vector<std::span<const uint8_t>> columns;
    for (auto& column : weights) {
      for (int k = 0; k < kFp8BlockLen; ++k) {
        // Steps of different kinds, so that the accumulator dominates one and vanishes in the next.
        column.push_back(draw(random, (round + k / 32) % 5));
      }
      columns.emplace_back(column);
    }
    std::vector<uint8_t> x;
    for (int k = 0; k < kFp8BlockLen; ++k) {
      x.push_back(draw(random, (round / 5 + k / 32) % 5));
    }
    ASSERT_TRUE(unpack_fp8_tile(columns, *tile));
    ASSERT_TRUE(unpack_fp8_block(x, block));
    for (const Kernel& kernel : kernels()) {
      if (!kernel.supported) {
        continue;
      }
      std::array<float, kFp8TileCols> partial{};
      kernel.run(block, *tile, partial.data());
      for (size_t n = 0; n < kFp8TileCols; ++n) {
        const std::vector<uint32_t> a(x.begin(), x.end());
        const std::vector<uint32_t> b(weights[n].begin(), weights[n].end());
        ASSERT_EQ(std::bit_cast<uint32_t>(partial[n]), path_dot(wgmma, Format::kE4m3, a, b, 0))
            << kernel.name << " round " << round << " column " << n;
      }
    }
  }
}

TEST(TensorCoreFp8Block, Kernels_LeaveTheRoundingModeAlone) {
  auto tile = std::make_unique<Fp8Tile>();
  Fp8Block block;
  ASSERT_TRUE(unpack_fp8_tile({}, *tile));
  ASSERT_TRUE(unpack_fp8_block({}, block));
  std::array<float, kFp8TileCols> partial{1};
  fp8_block_kernel()(block, *tile, partial.data());
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_EQ(std::bit_cast<uint32_t>(partial[0]), 0u);
}

TEST(TensorCoreFp8Block, NanCodes_AreRefused) {
  Fp8Block block;
  EXPECT_FALSE(unpack_fp8_block(std::vector<uint8_t>{0x38, 0x7F}, block));
  EXPECT_FALSE(unpack_fp8_block(std::vector<uint8_t>{0xFF}, block));
}

}  // namespace
}  // namespace reference::tensor_core
