// The weights of an FP8 checkpoint for an engine without FP8 linears: code times scale, rounded to the kernels' 16-bit format.
#pragma once

#include <string>

#include "model/weight_source.hpp"

namespace gpu {

class DequantisedSource : public model::WeightSource {
 public:
  // `original` must outlive this; `half` is what Backend::half() says.
  DequantisedSource(const model::WeightSource& original, model::DType half);

  // As if the checkpoint had no FP8.
  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override;
  [[nodiscard]] model::TensorView rows(const std::string& name, int64_t begin, int64_t end) const override;

 private:
  [[nodiscard]] model::TensorView dequantised(const std::string& name,
                                              const model::TensorView& codes,
                                              int64_t first_row) const;

  const model::WeightSource& original_;
  model::DType half_;
  model::ModelConfig config_;
};

}  // namespace gpu
