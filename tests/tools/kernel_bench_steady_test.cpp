// When dsv3-bench stops repeating a measurement.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tools/bench/steady.hpp"

namespace tools {
namespace {

// 1, 2, ..., 101: the deciles are 11 and 91, the median 51.
TEST(MedianNoise, IsTheFormulaOfTheNormalDistribution) {
  std::vector<double> times(101);
  std::iota(times.begin(), times.end(), 1.0);
  const double sigma = (91.0 - 11.0) / 2.5631;
  EXPECT_NEAR(median_noise_frac(times), 1.2533 * sigma / std::sqrt(101.0) / 51.0, 1e-12);
}

TEST(MedianNoise, DoesNotSeeOneOutlier) {
  std::vector<double> times(40, 10.0);
  times.push_back(1e6);
  EXPECT_EQ(median_noise_frac(times), 0);
}

// The standard error that it states is the one that medians of normal samples have.
TEST(MedianNoise, IsHowMediansScatter) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(100, 5);
  constexpr int kSamples = 400;
  constexpr int kTimes = 201;
  double sum_squares = 0;
  double stated = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    std::vector<double> times(kTimes);
    for (double& time : times) {
      time = normal(random);
    }
    stated += median_noise_frac(times) / kSamples;
    std::nth_element(times.begin(), times.begin() + kTimes / 2, times.end());
    const double error = times[kTimes / 2] / 100 - 1;
    sum_squares += error * error;
  }
  EXPECT_NEAR(std::sqrt(sum_squares / kSamples) / stated, 1, 0.1);
}

struct FakeDevice {
  double now_s = 0;
  double spread_us = 0;
  int calls = 0;
  std::vector<double> measure(int repetitions) {
    ++calls;
    now_s += 1;
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
      times.push_back(100 + (i % 2 == 0 ? spread_us : -spread_us));
    }
    return times;
  }
  std::vector<double> run(const SteadyLimits& limits) {
    return repeat_until_steady([this](int n) { return measure(n); }, [this] { return now_s; }, limits);
  }
};

TEST(RepeatUntilSteady, StopsAtOnceWhereNothingScatters) {
  FakeDevice device;
  EXPECT_EQ(device.run({}).size(), 20U);
}

// Ten microseconds either way of 100: 1.2533 * 20 / 2.5631 / sqrt(n) / 100 is below 2 % from n = 24 on, so after 20 + 40.
TEST(RepeatUntilSteady, GoesOnUntilTheNoiseIsSmall) {
  FakeDevice device{.spread_us = 10};
  EXPECT_EQ(device.run({.noise_frac = 0.02, .max_seconds = 100}).size(), 60U);
  EXPECT_EQ(device.calls, 2);
}

TEST(RepeatUntilSteady, GivesUpWhenTheTimeIsOver) {
  FakeDevice device{.spread_us = 50};
  EXPECT_EQ(device.run({.noise_frac = 1e-9, .max_seconds = 3}).size(), 20U + 40U + 80U);
}

}  // namespace
}  // namespace tools
