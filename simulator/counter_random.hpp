// Random numbers that are a pure function of what they are for: a generator is named by a seed and up to three indices, so any
// sample can be drawn alone, in any order, and two variants of a deployment see the same randomness.
#pragma once

#include <cstdint>

namespace simulator {

class CounterRandom {
 public:
  explicit CounterRandom(uint64_t seed, int64_t first = 0, int64_t second = 0, int64_t third = 0);

  uint64_t bits();
  double uniform();              // in (0, 1)
  double normal();               // mean 0, variance 1
  int64_t below(int64_t limit);  // 0 .. limit - 1
  // Successes of `num_trials`. Exact by inversion where the mean (or the mean of failures) is below 12, else the rounded normal
  // approximation, whose error in the distribution function is below 1 % there.
  int64_t binomial(int64_t num_trials, double chance);

 private:
  uint64_t state_;
  double spare_normal_ = 0;
  bool has_spare_ = false;
};

}  // namespace simulator
