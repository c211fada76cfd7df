// The random bits and the deviates made of them, against published vectors and the normal distribution itself.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "model/dtype.hpp"
#include "tools/synthetic/deviates.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::synthetic {
namespace {

using Block = std::array<uint32_t, 4>;

// Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswersOfRandom123_AreMet) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// XXH3-64 of the empty string is 0x2d06800538d394c2 (xxHash's own test vector for seed 0).
TEST(Draws, KeyIsTheSeed_CounterIsBlockAndNameHash) {
  const Block block = philox4x32({5, 0, 0x38d394c2, 0x2d068005}, {0x89abcdef, 0x01234567});
  Draws draws(0x0123456789abcdef, "");
  for (int64_t lane = 0; lane < 8; ++lane) {
    const uint32_t word = block[static_cast<size_t>(lane / 2)];
    EXPECT_EQ(draws.bits(5 * 8 + lane), lane % 2 == 0 ? word & 0xFFFF : word >> 16) << lane;
  }
}

TEST(Draws, OrderOfAsking_ChangesNothing) {
  Draws forwards(7, "a");
  Draws backwards(7, "a");
  std::vector<uint16_t> bits;
  for (int64_t i = 0; i < 100; ++i) {
    bits.push_back(forwards.bits(i));
  }
  for (int64_t i = 99; i >= 0; --i) {
    EXPECT_EQ(backwards.bits(i), bits[static_cast<size_t>(i)]);
  }
}

TEST(Draws, BlocksBeyond32Bits_Differ) {
  Draws draws(7, "a");
  const int64_t far = int64_t{8} << 32;
  EXPECT_NE((std::array{draws.bits(0), draws.bits(1), draws.bits(2)}),
            (std::array{draws.bits(far), draws.bits(far + 1), draws.bits(far + 2)}));
}

// The distribution function at the deviate gives the probability back, to a hundredth of the distance of two quantiles.
TEST(NormalDeviates, AreTheQuantilesOfTheirBits) {
  const auto deviates = normal_deviates();
  for (size_t bits = 0; bits < 65536; ++bits) {
    const double probability = 0.5 * std::erfc(-deviates[bits] / std::sqrt(2.0));
    ASSERT_NEAR(probability, (static_cast<double>(bits) + 0.5) / 65536, 1.5e-7) << bits;
  }
  EXPECT_EQ(deviates[0], -deviates[65535]);
}

// Nearest by brute force over all 254 finite codes.
TEST(NormalCodes, AreTheNearestToTheScaledDeviates) {
  for (size_t bits = 0; bits < 65536; bits += 7) {
    const double value = 448 / 3.9 * normal_deviates()[bits];
    double nearest = INFINITY;
    for (int code = 0; code < 256; ++code) {
      const double distance = std::abs(model::decode_f8_e4m3(static_cast<uint8_t>(code)) - value);
      nearest = std::fmin(nearest, std::isnan(distance) ? INFINITY : distance);
    }
    ASSERT_EQ(std::abs(model::decode_f8_e4m3(normal_codes()[bits]) - value), nearest) << bits;
  }
}

TEST(NormalCodes, AreAlmostAllThereAre_AndNeverNan) {
  const std::set<uint8_t> codes(normal_codes().begin(), normal_codes().end());
  EXPECT_FALSE(codes.contains(0x7F));
  EXPECT_FALSE(codes.contains(0xFF));
  EXPECT_GT(codes.size(), 230U);
  // 448 / 3.9, made a little smaller by the clip.
  EXPECT_NEAR(normal_code_std(), 448 / 3.9, 0.5);
}

}  // namespace
}  // namespace tools::synthetic
