#include "simulator/counter_random.hpp"

#include <algorithm>
#include <cmath>

namespace simulator {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

// Finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// The number of successes is at most a few dozen here: walks up the distribution function.
int64_t binomial_by_inversion(int64_t num_trials, double chance, double uniform) {
  const double odds = chance / (1 - chance);
  double mass = std::exp(static_cast<double>(num_trials) * std::log1p(-chance));
  int64_t count = 0;
  while (uniform > mass && count < num_trials) {
    uniform -= mass;
    mass *= odds * static_cast<double>(num_trials - count) / static_cast<double>(count + 1);
    ++count;
  }
  return count;
}

}  // namespace

CounterRandom::CounterRandom(uint64_t seed, int64_t first, int64_t second, int64_t third) : state_(mix(seed + kStep)) {
  for (const int64_t index : {first, second, third}) {
    state_ = mix(state_ + kStep + static_cast<uint64_t>(index));
  }
}

uint64_t CounterRandom::bits() {
  state_ += kStep;
  return mix(state_);
}

double CounterRandom::uniform() {
  return (static_cast<double>(bits() >> 12) + 0.5) * 0x1p-52;
}

double CounterRandom::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_normal_;
  }
  // Marsaglia's polar method.
  double x = 0;
  double y = 0;
  double square = 0;
  do {
    x = 2 * uniform() - 1;
    y = 2 * uniform() - 1;
    square = x * x + y * y;
  } while (square >= 1);
  const double scale = std::sqrt(-2 * std::log(square) / square);
  spare_normal_ = y * scale;
  has_spare_ = true;
  return x * scale;
}

int64_t CounterRandom::below(int64_t limit) {
  return std::min(static_cast<int64_t>(uniform() * static_cast<double>(limit)), limit - 1);
}

int64_t CounterRandom::binomial(int64_t num_trials, double chance) {
  constexpr double kExactBelow = 12;
  if (num_trials <= 0 || chance <= 0) {
    return 0;
  }
  if (chance >= 1) {
    return num_trials;
  }
  if (chance > 0.5) {
    return num_trials - binomial(num_trials, 1 - chance);
  }
  const double mean = static_cast<double>(num_trials) * chance;
  if (mean < kExactBelow) {
    return binomial_by_inversion(num_trials, chance, uniform());
  }
  const double drawn = std::round(mean + normal() * std::sqrt(mean * (1 - chance)));
  return std::clamp(static_cast<int64_t>(drawn), int64_t{0}, num_trials);
}

}  // namespace simulator
