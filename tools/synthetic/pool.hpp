// The weights of a fixture too large to draw: random codes made once, in which each matrix is a window that starts at a place of its own.
// So weights cost no time where they are read, and every one is still a function of (seed, tensor name, index). The price: two matrices
// may overlap, shifted against each other, and no region can be given zeros or outliers of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "model/tensor_catalog.hpp"
#include "model/tensor_view.hpp"

namespace tools::synthetic {

class WeightPool {
 public:
  WeightPool(uint64_t seed, int64_t largest_fp8_elements) : seed_(seed), largest_(largest_fp8_elements) {}

  // Elements [first, first + count) of an FP8 matrix, as a view [count] of the pool. Normal codes, one in about a thousand the largest,
  // so that nearly every 128-block has one. The pool is made at the first call.
  [[nodiscard]] model::TensorView fp8_codes(const model::CatalogTensor& tensor, int64_t first, int64_t count) const;

  // The same of a BF16 matrix with the given standard deviation, written into memory of their own: runs of 128 elements, each from
  // somewhere else in 65,536 normal numbers. Threads share the work and change no bit.
  [[nodiscard]] model::TensorView bf16_codes(const std::string& name, double std, int64_t first, int64_t count) const;

 private:
  uint64_t seed_;
  int64_t largest_;
  mutable std::once_flag made_;
  mutable std::shared_ptr<const std::vector<uint8_t>> fp8_;
};

}  // namespace tools::synthetic
