// The figures that the score sets beside this verifier do what their limits say, worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "tools/score.hpp"

namespace tools {
namespace {

using Values = std::vector<double>;

bool holds(const std::string& name, const Values& expected, const Values& got) {
  for (const auto& metric : score_metrics()) {
    if (metric.name == name) {
      return metric.holds(expected, got);
    }
  }
  ADD_FAILURE() << name;
  return false;
}

TEST(ScoreMetrics, CalcDiff_LimitsTheSquaredDistance) {
  EXPECT_TRUE(holds("calc_diff", {1}, {1.04}));   // 0.0016 / 2.0816 = 7.7e-4
  EXPECT_FALSE(holds("calc_diff", {1}, {1.05}));  // 0.0025 / 2.1025 = 1.2e-3
}

TEST(ScoreMetrics, Allclose_LooksAtEveryElement) {
  EXPECT_TRUE(holds("allclose", {1, 100}, {1.016, 101.6}));
  EXPECT_FALSE(holds("allclose", {1, 100}, {1.0161, 100}));
  EXPECT_TRUE(holds("allclose", {0}, {1e-5}));
}

TEST(ScoreMetrics, Cosine_IsBlindToScale) {
  EXPECT_TRUE(holds("cosine", {1, 0}, {1, 0.04}));   // 1 / sqrt(1.0016) = 0.9992
  EXPECT_FALSE(holds("cosine", {1, 0}, {1, 0.05}));  // 1 / sqrt(1.0025) = 0.9988
  EXPECT_TRUE(holds("cosine", {1, 2}, {3, 6}));
}

TEST(ScoreMetrics, Energy_IsBlindToSign) {
  EXPECT_TRUE(holds("energy", {1}, {1.0004}));  // 8.0e-4
  EXPECT_FALSE(holds("energy", {1}, {1.001}));  // 2.0e-3
  EXPECT_TRUE(holds("energy", {1, 2}, {-2, 1}));
}

TEST(ScoreMetrics, Pearson_IsBlindToScaleAndOffset) {
  EXPECT_TRUE(holds("pcc", {1, 2, 3}, {12, 14, 16}));
  EXPECT_FALSE(holds("pcc", {1, 2, 3}, {3, 2, 1}));
  EXPECT_TRUE(holds("pcc", {2, 2}, {2, 2}));
}

TEST(ScoreMetrics, TheShare_LetsTwoOfAHundredGo) {
  const Values expected(100, 1.0);
  Values got = expected;
  got[0] = got[1] = 5;
  EXPECT_TRUE(holds("2% of 2/128", expected, got));
  got[2] = 5;
  EXPECT_FALSE(holds("2% of 2/128", expected, got));
}

TEST(ScoreMetrics, NoneLetsNanPass_AndEachTakesEqualTensors) {
  for (const auto& metric : score_metrics()) {
    EXPECT_FALSE(metric.holds({1, 2}, {1, std::nan("")})) << metric.name;
    EXPECT_TRUE(metric.holds({1, 2}, {1, 2})) << metric.name;
    EXPECT_TRUE(metric.holds({0, 0}, {0, 0})) << metric.name;
  }
}

}  // namespace
}  // namespace tools
