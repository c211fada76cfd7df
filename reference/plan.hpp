// The op list of a step with everything resolved that stays the same from step to step: which value is whose input, where weights
// are, what the parts of grouped ops are, and room for the values themselves. Steps that differ only in lengths share a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/op_list.hpp"
#include "model/weight_source.hpp"
#include "reference/half_weights.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

// Stands among a planned op's inputs for the latent cache of its layer.
inline constexpr int kCacheSlot = -1;

struct PlannedOp {
  model::Op op;                                  // with the shapes of the step, and without costs
  std::optional<WeightMatrix> matrix = {};       // of an op that reads what kv_b expands: kv_b's
  std::optional<model::TensorView> vector = {};  // a gain or a bias
  std::vector<int> inputs = {};                  // slots of values, in the order of op.inputs
  std::vector<int> last_reads = {};              // slots that nobody reads after this op
  int output = kCacheSlot;                       // slot of the result; of a grouped op, of the results of its parts
  std::vector<PlannedOp> parts = {};  // of a grouped op, by expert; their inputs and outputs are those of the group
  std::vector<model::TensorView> views =
      {};  // OpCall::inputs, empty between steps: shapes find their memory there again
};

// A tensor that a step computes, or the parts of it that a grouped op computes by expert. Between steps all are empty views, which
// keep the memory of their shapes.
struct Value {
  model::TensorView whole = {};
  std::vector<model::TensorView> parts = {};  // [num experts], empty where no token chose the expert
};

// Lets go of the bytes; the shape's memory stays.
void clear(model::TensorView& view);

class Plan {
 public:
  // `keeps_weights`: they are looked up here, once, and taken from `half_weights`, which may be null, where it has
  // them. Otherwise an op fetches its own.
  Plan(const model::WeightSource& weights,
       const model::Workload& workload,
       bool keeps_weights,
       HalfWeights* half_weights);

  // Whether the list of this workload differs from this one at most in lengths.
  [[nodiscard]] bool fits(const model::Workload& workload) const;
  // Gives the ops the shapes of that workload, which fits.
  void set_lengths(const model::Workload& workload);

  [[nodiscard]] std::span<PlannedOp> ops() { return ops_; }
  [[nodiscard]] Value& value(int slot) { return values_[static_cast<size_t>(slot)]; }
  // What comes from outside. CheckError if the list does not read it.
  [[nodiscard]] Value& tokens() { return outer_value(tokens_); }
  [[nodiscard]] Value& mtp_tokens(int64_t mtp_layer) {
    return outer_value(mtp_tokens_.at(static_cast<size_t>(mtp_layer)));
  }
  [[nodiscard]] Value& mtp_state() { return outer_value(mtp_state_); }

 private:
  [[nodiscard]] Value& outer_value(std::optional<int> slot);
  void plan_last_reads();

  model::Workload workload_;
  std::vector<PlannedOp> ops_;
  std::vector<Value> values_;  // by slot
  std::optional<int> tokens_;
  std::vector<std::optional<int>> mtp_tokens_;  // by MTP layer
  std::optional<int> mtp_state_;                // of workload.only_mtp_layer
};

}  // namespace reference
