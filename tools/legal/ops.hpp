// Ops as another correct engine computes them under the published rule: FP32, in an order of its own.
#pragma once

#include <optional>

#include "reference/op_call.hpp"
#include "tools/legal/orders.hpp"

namespace tools::legal {

// Empty for ops that have no such freedom. call.rules are those of profile v32.
std::optional<model::TensorView> run_in_order(const reference::OpCall& call, Order& order);

}  // namespace tools::legal
