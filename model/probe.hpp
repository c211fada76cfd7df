// Somebody who watches a forward pass: a recorder, a counter, a comparison.
#pragma once

#include <string>

#include "model/op_list.hpp"
#include "model/tensor_view.hpp"

namespace model {

class Probe {
 public:
  virtual ~Probe() = default;
  // Asked before an optional op, and before the latent cache is copied for see(): does anybody want it?
  [[nodiscard]] virtual bool wants(const Op& op) const = 0;
  // Called with every computed op, in order of execution; parts of grouped ops come one by one.
  virtual void see(const Op& op, const TensorView& value) = 0;
};

}  // namespace model
