// Random tensors of a size as they meet an op in the model: a pure function of seed, name and shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tensor_view.hpp"

namespace tools::op_pack {

class Samples {
 public:
  explicit Samples(uint64_t seed) : seed_(seed) {}

  // Normal with standard deviation `std`; two channels are kOutlierFactor times larger, and the last row starts with zeros: a whole
  // block of 128 where there is room. BF16.
  [[nodiscard]] model::TensorView activations(const std::string& name, const model::Shape& shape, double std = 1) const;
  // Normal, BF16.
  [[nodiscard]] model::TensorView bf16_weight(const std::string& name,
                                              const model::Shape& shape,
                                              double mean,
                                              double std) const;
  // E4M3 codes that use the whole range, and the scale of each 128x128 block, which neighbours do not share. [out, in]
  [[nodiscard]] model::TensorView fp8_weight(const std::string& name, const model::Shape& shape) const;
  [[nodiscard]] model::TensorView fp8_scales(const std::string& name, const model::Shape& shape, double std) const;
  // Evenly distributed in [low, high), FP32.
  [[nodiscard]] std::vector<float> uniform(const std::string& name, int64_t count, double low, double high) const;
  // k different numbers below `count` for each row. I32 [rows, k]
  [[nodiscard]] model::TensorView distinct_ids(const std::string& name, int64_t rows, int64_t k, int64_t count) const;

 private:
  uint64_t seed_;
};

inline constexpr double kOutlierFactor = 8;

}  // namespace tools::op_pack
