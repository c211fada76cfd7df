// Ops, weights and tensors made by hand, so that one op runs alone on numbers a reader can check.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/check.hpp"
#include "model/op_list.hpp"
#include "model/tensor_view.hpp"
#include "model/weight_source.hpp"
#include "reference/op_call.hpp"

namespace reference {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The values must be BF16 numbers: their upper 16 bits are the codes.
inline model::TensorView bf16(model::Shape shape, const std::vector<float>& values) {
  std::vector<uint16_t> codes;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    CHECK_EQ(bits & 0xFFFFU, 0U);
    codes.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return model::make_tensor(model::DType::kBF16, std::move(shape), std::move(codes));
}

inline model::TensorView f32(model::Shape shape, std::vector<float> values) {
  return model::make_tensor(model::DType::kF32, std::move(shape), std::move(values));
}

inline model::TensorView f64(model::Shape shape, std::vector<double> values) {
  return model::make_tensor(model::DType::kF64, std::move(shape), std::move(values));
}

inline model::TensorView i32(model::Shape shape, std::vector<int32_t> values) {
  return model::make_tensor(model::DType::kI32, std::move(shape), std::move(values));
}

// The values must be E4M3 numbers; looked up in the decoding table.
inline model::TensorView f8(model::Shape shape, const std::vector<float>& values) {
  std::map<float, uint8_t> code_of;
  for (int code = 255; code >= 0; --code) {
    const float number = model::decode_f8_e4m3(static_cast<uint8_t>(code));
    if (!std::isnan(number)) {
      code_of[number] = static_cast<uint8_t>(code);
    }
  }
  std::vector<uint8_t> codes;
  for (const float value : values) {
    codes.push_back(code_of.at(value));
  }
  return model::make_tensor(model::DType::kF8E4M3, std::move(shape), std::move(codes));
}

class HandMadeWeights : public model::WeightSource {
 public:
  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      model::throw_input_error("no tensor {}", name);
    }
    return found->second;
  }
  model::ModelConfig& mutable_config() { return config_; }
  void set(const std::string& name, model::TensorView tensor) { tensors_[name] = std::move(tensor); }

 private:
  model::ModelConfig config_;
  std::map<std::string, model::TensorView> tensors_;
};

// One op and its surroundings, to be filled in field by field.
struct HandMadeOp {
  Rules rules = {};
  model::Workload workload = {};
  HandMadeWeights weights = {};
  model::Op op = {};

  model::ModelConfig& config() { return weights.mutable_config(); }

  // The op has one weight, "w".
  void set_weight(model::TensorView tensor) {
    weights.set("w", std::move(tensor));
    op.weights = {"w"};
  }
  void set_weight(model::TensorView tensor, model::TensorView scale) {
    set_weight(std::move(tensor));
    weights.set("w_scale_inv", std::move(scale));
  }

  [[nodiscard]] model::TensorView run(std::vector<model::TensorView> inputs,
                                      const std::vector<model::TensorView>& expert_outputs = {}) const {
    return run_op({.rules = rules,
                   .workload = workload,
                   .weights = weights,
                   .op = op,
                   .inputs = std::move(inputs),
                   .expert_outputs = expert_outputs});
  }
};

using Numbers = std::vector<double>;

inline Numbers numbers(const model::TensorView& tensor) {
  return model::to_double(tensor);
}

}  // namespace reference
