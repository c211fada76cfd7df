// Expected figures are worked out by hand from the definitions in metrics.hpp and the layout of each number format.
#include "golden/metrics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "model/check.hpp"

namespace {

using golden::compare_values;
using golden::Metrics;
using golden::ulp_distance;
using model::DType;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Metrics compare(const std::vector<double>& expected, const std::vector<double>& got, DType storage = DType::kF32) {
  return compare_values(expected, got, storage);
}

TEST(UlpDistance, CountsBf16StepsOnBothSidesOfAPowerOfTwo) {
  // BF16 has 8 significant bits: above 1 the step is 2^-7, below 2^-8.
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-7, DType::kBF16), 1);
  EXPECT_EQ(ulp_distance(1, 1 - 0x1p-8, DType::kBF16), 1);
  EXPECT_EQ(ulp_distance(1 - 0x1p-8, 1 + 0x1p-7, DType::kBF16), 2);
  EXPECT_EQ(ulp_distance(1, 2, DType::kBF16), 128);
  EXPECT_EQ(ulp_distance(-1, -2, DType::kBF16), 128);
}

TEST(UlpDistance, CountsThroughZero) {
  // The smallest BF16 number is 2^-133; 2^-126 is the first normal one, 128 steps from zero.
  EXPECT_EQ(ulp_distance(-0x1p-133, 0x1p-133, DType::kBF16), 2);
  EXPECT_EQ(ulp_distance(0.0, 0x1p-126, DType::kBF16), 128);
  EXPECT_EQ(ulp_distance(0.0, -0.0, DType::kBF16), 0);
}

TEST(UlpDistance, GivesFractionsForValuesTheDtypeCannotHold) {
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-8, DType::kBF16), 0.5);
}

TEST(UlpDistance, KnowsTheOtherFormats) {
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-23, DType::kF32), 1);
  EXPECT_EQ(ulp_distance(0, 0x1p-149, DType::kF32), 1);
  EXPECT_EQ(ulp_distance(1, 1 + 0x1p-10, DType::kF16), 1);
  EXPECT_EQ(ulp_distance(0, 0x1p-24, DType::kF16), 1);
  EXPECT_EQ(ulp_distance(448, 416, DType::kF8E4M3), 1);  // the largest two of E4M3FN
  EXPECT_EQ(ulp_distance(0, 0x1p-9, DType::kF8E4M3), 1);
  EXPECT_EQ(ulp_distance(1, 8, DType::kF8E8M0), 3);
  EXPECT_EQ(ulp_distance(3, 7, DType::kI32), 4);
}

TEST(UlpDistance, CountsF64StepsExactly) {
  EXPECT_EQ(ulp_distance(1, std::nextafter(1, 2), DType::kF64), 1);
  EXPECT_EQ(ulp_distance(1, std::nextafter(std::nextafter(1, 0), 0), DType::kF64), 2);
  EXPECT_EQ(ulp_distance(-0x1p-1074, 0x1p-1074, DType::kF64), 2);
  EXPECT_EQ(ulp_distance(0.0, -0.0, DType::kF64), 0);
  const double largest = std::numeric_limits<double>::max();
  EXPECT_NEAR(ulp_distance(-largest, largest, DType::kF64), 2 * 0x7FEFFFFFFFFFFFFFp0, 0x1p12);
}

TEST(Metrics, EqualTensorsHaveNoDistance) {
  const Metrics m = compare({1, -2, 0, kInf, kNan}, {1, -2, 0, kInf, kNan});
  EXPECT_EQ(m.num_elements, 5);
  EXPECT_EQ(m.max_ulp, 0);
  EXPECT_EQ(m.max_abs, 0);
  EXPECT_EQ(m.cosine, 1);
  EXPECT_EQ(m.calc_diff, 0);
  EXPECT_EQ(m.relative_l2, 0);
  EXPECT_EQ(m.equal_frac, 1);
  EXPECT_EQ(m.nan_mismatches, 0);
  EXPECT_EQ(m.inf_mismatches, 0);
  EXPECT_EQ(m.worst_index, -1);
}

TEST(Metrics, FollowTheirDefinitions) {
  // x = (3, 4, 0), y = (4, 4, 3): <x,y> = 28, |x|^2 = 25, |y|^2 = 41, |x - y|^2 = 10.
  const Metrics m = compare({3, 4, 0}, {4, 4, 3});
  EXPECT_DOUBLE_EQ(m.cosine, 28 / std::sqrt(25.0 * 41.0));
  EXPECT_DOUBLE_EQ(m.calc_diff, 1 - 56.0 / 66.0);
  EXPECT_DOUBLE_EQ(m.relative_l2, std::sqrt(10.0) / 5);
  EXPECT_EQ(m.max_abs, 3);
  EXPECT_EQ(m.worst_index, 2);
  EXPECT_DOUBLE_EQ(m.equal_frac, 1.0 / 3.0);
}

TEST(Metrics, MaxUlpIsTheLargestInStepsNotInSize) {
  // In F32, 1 -> 1 + 2^-22 is two steps; 1024 -> 1024 + 2^-13 is one, though the larger difference.
  const Metrics m = compare({1, 1024}, {1 + 0x1p-22, 1024 + 0x1p-13});
  EXPECT_EQ(m.max_ulp, 2);
  EXPECT_EQ(m.max_abs, 0x1p-13);
  EXPECT_EQ(m.worst_index, 1);
}

TEST(Metrics, OppositeTensorsHaveCosineMinusOne) {
  const Metrics m = compare({1, 2}, {-1, -2});
  EXPECT_DOUBLE_EQ(m.cosine, -1);
  EXPECT_DOUBLE_EQ(m.calc_diff, 2);
  EXPECT_DOUBLE_EQ(m.relative_l2, 2);
}

TEST(Metrics, CalcDiffDoesNotCancel) {
  // |x - y|^2 / (|x|^2 + |y|^2) = 2^-60 / 2 up to the last digit; 1 - 2<x,y>/... would round to 0.
  EXPECT_NEAR(compare({1}, {1 + 0x1p-30}).calc_diff, 0x1p-61, 0x1p-90);
}

TEST(Metrics, ZeroVectorsAreDefined) {
  const Metrics both = compare({0, 0}, {0, 0});
  EXPECT_EQ(both.cosine, 1);
  EXPECT_EQ(both.relative_l2, 0);
  const Metrics only_expected = compare({0, 0}, {1, 0});
  EXPECT_EQ(only_expected.cosine, 0);
  EXPECT_EQ(only_expected.calc_diff, 1);
  EXPECT_EQ(only_expected.relative_l2, kInf);
  const Metrics only_got = compare({1, 0}, {0, 0});
  EXPECT_EQ(only_got.cosine, 0);
  EXPECT_EQ(only_got.relative_l2, 1);
}

TEST(Metrics, ZerosOfDifferentSignDifferInBitsOnly) {
  const Metrics m = compare({0.0}, {-0.0});
  EXPECT_EQ(m.equal_frac, 0);
  EXPECT_EQ(m.max_ulp, 0);
  EXPECT_EQ(m.worst_index, -1);
}

TEST(Metrics, NanAndInfinityAreCountedApart) {
  const Metrics m = compare({1, kNan, kInf, kInf, 2, kNan, 5}, {1, 3, 4, -kInf, kNan, kInf, 105});
  EXPECT_EQ(m.nan_mismatches, 3);  // positions 1, 4, 5
  EXPECT_EQ(m.inf_mismatches, 2);  // positions 2, 3
  EXPECT_EQ(m.worst_index, 1);     // the first of them comes before the largest difference
  EXPECT_EQ(m.max_abs, 100);       // from finite pairs only
  EXPECT_DOUBLE_EQ(m.equal_frac, 1.0 / 7.0);
  EXPECT_TRUE(std::isfinite(m.cosine));
}

TEST(Metrics, EmptyTensorsAreEqual) {
  const Metrics m = compare({}, {});
  EXPECT_EQ(m.num_elements, 0);
  EXPECT_EQ(m.equal_frac, 1);
  EXPECT_EQ(m.worst_index, -1);
}

TEST(Metrics, DifferentLengthsAreAProgrammerError) {
  EXPECT_THROW(compare({1}, {1, 2}), model::CheckError);
}

}  // namespace
