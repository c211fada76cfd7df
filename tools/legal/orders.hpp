// Orders of a sum that do not look at the data, and functions of a device: the freedom a correct kernel has.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/dtype.hpp"

namespace tools::legal {

// One order, drawn once for an op and used for every sum of it.
class Order {
 public:
  // With `unrounded`, results are kept in FP32 instead of being rounded to what the op stores: to see how far they deviate.
  explicit Order(uint64_t seed, bool unrounded = false);

  [[nodiscard]] model::DType stored(model::DType dtype) const { return unrounded_ ? model::DType::kF32 : dtype; }

  [[nodiscard]] float sum(std::vector<float> terms) const;
  // Products rounded, or fused into a running sum.
  [[nodiscard]] float dot(std::span<const float> a, std::span<const float> b) const;
  [[nodiscard]] float sum_of_squares(std::span<const float> x) const { return dot(x, x); }

  // A value as a device's function returns it: up to 1.5 ulp from the correctly rounded one.
  [[nodiscard]] float function(double exact);
  // A coin, for choices that are not about order.
  [[nodiscard]] bool coin() { return random_() % 2 == 0; }

 private:
  enum class Kind { kAscending, kDescending, kFused, kPairwise, kLanes, kShuffled };

  [[nodiscard]] std::vector<size_t> permutation(size_t count) const;

  std::mt19937_64 random_;
  Kind kind_;
  size_t num_lanes_;
  uint64_t shuffle_seed_;
  bool unrounded_;
};

}  // namespace tools::legal
