// Where the weights of a model come from: a checkpoint on disk, a generator, or a decorator that plants a fault.
#pragma once

#include <cstdint>
#include <string>

#include "model/config.hpp"
#include "model/tensor_view.hpp"

namespace model {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  // Throws InputError when there is no tensor of this catalogue name.
  [[nodiscard]] virtual TensorView weight(const std::string& name) const = 0;
  // Rows [begin, end) of a matrix. A source that makes its tensors makes these rows alone.
  [[nodiscard]] virtual TensorView rows(const std::string& name, int64_t begin, int64_t end) const {
    return slice_rows(weight(name), begin, end);
  }
  // True if every tensor stays in memory, or mapped, as long as the source lives, so that holding views of all of them costs nothing.
  [[nodiscard]] virtual bool keeps_tensors() const { return false; }
};

}  // namespace model
