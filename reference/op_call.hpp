// One op with everything it reads: what a function in reference/ops/ is called with. Any op can be run alone this way.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/config.hpp"
#include "model/op_list.hpp"
#include "model/tensor_view.hpp"
#include "model/weight_source.hpp"
#include "reference/latent_cache.hpp"
#include "reference/reused.hpp"
#include "reference/rope.hpp"
#include "reference/rules.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

struct OpCall {
  const Rules& rules;
  const model::Workload& workload;
  const model::WeightSource& weights;
  const model::Op& op;
  // In the order of op.inputs. An empty view (no bytes) stands for the cache before the first step, and for the grouped input
  // of a combine, whose parts are in expert_outputs.
  std::vector<model::TensorView> inputs = {};
  std::span<const model::TensorView> expert_outputs = {};  // [num experts], empty views where no token chose the expert
  // Where the rows of the latent cache are when they are not a tensor among `inputs` (whose place then holds an empty view): of
  // each sequence of the workload its number in the cache. cache_latent adds the new rows there and returns an empty view.
  LatentCache* cache = nullptr;
  std::span<const int64_t> cache_sequences = {};
  // What a caller of many steps has at hand; an op without them fetches or computes its own.
  const WeightMatrix* matrix = nullptr;       // op.weights[0], if it is one
  const model::TensorView* vector = nullptr;  // op.weights[0], if it is a gain or a bias
  RotationTable* rotations = nullptr;
  int num_threads = 1;
  int64_t* flops = nullptr;  // if set: multiply-adds done are added here, times two

  [[nodiscard]] const model::ModelConfig& config() const { return weights.config(); }
};

// The matrix op.weights[0] of a call: the one at hand, or fetched.
class MatrixOf {
 public:
  explicit MatrixOf(const OpCall& call) : given_(call.matrix) {
    if (given_ == nullptr) {
      own_.emplace(call.weights, call.op.weights.at(0));
    }
  }
  [[nodiscard]] const WeightMatrix& matrix() const { return given_ != nullptr ? *given_ : *own_; }

 private:
  const WeightMatrix* given_;
  std::optional<WeightMatrix> own_;
};

// The gain or bias op.weights[0] of a call: the one at hand, or fetched; empty if the op has no weight.
Reused<float> weight_vector(const OpCall& call);

// Runs one op by its kind; `result`, which is no input of it, becomes what it computes, and its old shape's memory serves again.
// Throws CheckError when inputs do not fit, InputError when a weight is missing.
void run_op_into(model::TensorView& result, const OpCall& call);
model::TensorView run_op(const OpCall& call);

}  // namespace reference
