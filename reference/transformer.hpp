// Walks the op list of a step: the whole forward pass, with a latent cache that lives from step to step.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "model/op_list.hpp"
#include "model/probe.hpp"
#include "model/tensor_view.hpp"
#include "model/weight_source.hpp"
#include "reference/op_call.hpp"
#include "reference/rules.hpp"

namespace reference {

// What outlives a step: "cache.L.latent" -> rows of all sequences. Empty before the first step.
using CacheState = std::map<std::string, model::TensorView>;

// One step's input.
struct StepInput {
  model::Workload workload;
  std::vector<int32_t> tokens;                   // [num tokens], sequences one after another
  std::vector<std::vector<int32_t>> mtp_tokens;  // for each MTP layer k: [num tokens], token i + 1 + k of each row
};

class Transformer {
 public:
  // How one op is computed. The default is run_op; a fault wraps it.
  using RunOp = std::function<model::TensorView(const OpCall&)>;

  // `weights` must outlive this.
  Transformer(const model::WeightSource& weights, Rules rules, int num_threads, RunOp run = run_op);

  // Runs every op in order; `probe` sees each value. Values are dropped after their last reader. Updates `cache`.
  // Throws InputError for token ids outside the vocabulary.
  void step(const StepInput& input, CacheState& cache, model::Probe& probe) const;

 private:
  const model::WeightSource& weights_;
  Rules rules_;
  int num_threads_;
  RunOp run_;
};

// The same by-hand loop over MTP inputs that every caller needs: row i of sequence s reads token i + 1 + k, where `following`
// [sequences][>= num MTP layers] holds the tokens after the fed ones.
std::vector<std::vector<int32_t>> shifted_tokens(const std::vector<std::vector<int32_t>>& fed,
                                                 const std::vector<std::vector<int32_t>>& following,
                                                 int64_t num_mtp_layers);

}  // namespace reference
