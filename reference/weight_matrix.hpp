// A weight of a linear layer with its scales: rows of numbers, however the checkpoint stores them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/tensor_view.hpp"
#include "model/weight_source.hpp"

namespace reference {

// Weight [out, in]; for FP8 also scale [ceil(out/128), ceil(in/128)], FP32 or E8M0. Real value = FP32(code * scale).
class WeightMatrix {
 public:
  // Fetches the weight and, if it is FP8, the companion `<name>_scale_inv`.
  WeightMatrix(const model::WeightSource& source, const std::string& name);

  [[nodiscard]] int64_t out_dim() const { return weight_.shape[0]; }
  [[nodiscard]] int64_t in_dim() const { return weight_.shape[1]; }
  [[nodiscard]] bool is_fp8() const { return weight_.dtype == model::DType::kF8E4M3; }

  // Codes of one row as numbers, without scales. [in]
  void code_row(int64_t row, std::span<float> out) const;
  // Scale of the 128-block that holds (row, 128 * block). 1 for weights without scales.
  [[nodiscard]] float scale(int64_t row, int64_t block) const;
  // FP32(code * scale): the weight as exact mode sees it. [in]
  void row(int64_t row, std::span<float> out) const;
  // The same, rounded to BF16: DeepSeek's weight_dequant. [in]
  void bf16_row(int64_t row, std::span<float> out) const;

 private:
  model::TensorView weight_;
  model::TensorView scale_;
};

}  // namespace reference
