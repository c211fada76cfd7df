// The op list of a step with everything resolved that stays the same from step to step: which value is whose input, where weights
// are, what the parts of grouped ops are. Steps that differ only in lengths share a plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/op_list.hpp"
#include "model/weight_source.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

// Stands among a planned op's inputs for the latent cache of its layer.
inline constexpr int kCacheSlot = -1;

struct PlannedOp {
  model::Op op;  // with the shapes of the step, and without costs
  std::optional<WeightMatrix> matrix = {};
  std::optional<model::TensorView> vector = {};  // a gain or a bias
  std::vector<int> inputs = {};                  // slots of values, in the order of op.inputs
  std::vector<int> last_reads = {};              // slots that nobody reads after this op
  int output = kCacheSlot;                       // slot of the result; of a grouped op, of the results of its parts
  std::vector<PlannedOp> parts = {};  // of a grouped op, by expert; their inputs and outputs are those of the group
};

class Plan {
 public:
  // `keeps_weights`: they are looked up here, once. Otherwise an op fetches its own.
  Plan(const model::WeightSource& weights, const model::Workload& workload, bool keeps_weights);

  // Whether the list of this workload differs from this one at most in lengths.
  [[nodiscard]] bool fits(const model::Workload& workload) const;
  // Gives the ops the shapes of that workload, which fits.
  void set_lengths(const model::Workload& workload);

  [[nodiscard]] const std::vector<PlannedOp>& ops() const { return ops_; }
  [[nodiscard]] size_t num_slots() const { return slots_.size(); }
  // Of a value that comes from outside ("tokens"), or an op's; CheckError if the list has none of that id.
  [[nodiscard]] int slot(const std::string& id) const;

 private:
  int slot_for(const std::string& id);

  model::Workload workload_;
  std::vector<PlannedOp> ops_;
  std::map<std::string, int> slots_;
};

}  // namespace reference
