// The attention core in an order of its own, expanded and absorbed.
#pragma once

#include "reference/op_call.hpp"
#include "tools/legal/orders.hpp"

namespace tools::legal {

model::TensorView attention_probs(const reference::OpCall& call, Order& order);
model::TensorView attention_lse(const reference::OpCall& call, Order& order);
model::TensorView context(const reference::OpCall& call, Order& order);
model::TensorView context_from_latent(const reference::OpCall& call, Order& order);
model::TensorView query_latent(const reference::OpCall& call, Order& order);
model::TensorView output_latent(const reference::OpCall& call, Order& order);

}  // namespace tools::legal
