// One op recomputed with error bounds: what it should give before its last rounding, and how far a legal implementation may
// lie from that. The derivations stand beside each function in reference/bounds/ and in docs/bounds.md.
#pragma once

#include <vector>

#include "model/estimate.hpp"
#include "model/op_list.hpp"
#include "model/weight_source.hpp"
#include "reference/rules.hpp"

namespace reference {

struct EstimateCall {
  const Rules& rules;
  const model::Workload& workload;
  const model::WeightSource& weights;
  const model::Op& op;
  // As OpCall: in the order of op.inputs, an empty estimate for a cache that does not exist yet.
  std::vector<model::Estimate> inputs = {};
  std::vector<model::Estimate> expert_outputs = {};
  double num_sigmas = 8;  // width of the variance-derived bound
  int num_threads = 1;

  [[nodiscard]] const model::ModelConfig& config() const { return weights.config(); }
};

// Every kind but router_groups and router_experts, whose results are judged by margins (bounds/routing.hpp).
model::Estimate estimate_op(const EstimateCall& call);

// The estimate after it is stored: the value is rounded; where its interval straddles a rounding boundary, and only there, the
// error becomes the distance to the other side. Exact mode stores FP64 and keeps value and error.
model::Estimate rounded(const model::Estimate& estimate);

// A stored tensor, taken as given.
model::Estimate given(const model::TensorView& tensor);

}  // namespace reference
