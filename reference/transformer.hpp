// Walks the op list of a step: the whole forward pass, with a latent cache that lives from step to step.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/op_list.hpp"
#include "model/probe.hpp"
#include "model/tensor_view.hpp"
#include "model/weight_source.hpp"
#include "reference/half_weights.hpp"
#include "reference/op_call.hpp"
#include "reference/plan.hpp"
#include "reference/rope.hpp"
#include "reference/rules.hpp"

namespace reference {

// One step's input.
struct StepInput {
  model::Workload workload;
  std::vector<int32_t> tokens = {};  // [num tokens], sequences one after another; not read by an MTP layer alone
  // For each MTP layer k that runs: [num tokens], token i + 1 + k of each row.
  std::vector<std::vector<int32_t>> mtp_tokens = {};
  model::TensorView mtp_state = {};           // with workload.only_mtp_layer: the state it reads [num tokens, hidden]
  std::vector<int64_t> cache_sequences = {};  // number of each sequence in the cache; empty: 0, 1, 2, ...
  bool with_logits = true;                    // false: ops of kind kHead are left out
  std::string last_op =
      {};  // the step ends with this op (or group); empty: with the list. The cache is then of no further use
};

class Transformer {
 public:
  // How one op is computed, in place of run_op: a fault wraps it. It is given, and returns, the latent cache as a tensor.
  using RunOp = std::function<model::TensorView(const OpCall&)>;

  // `weights` must outlive this.
  Transformer(const model::WeightSource& weights, Rules rules, int num_threads, RunOp run = {});

  // Runs every op in order; `probe` sees each value, the cache only if it wants that op. Values are dropped after their last
  // reader. Appends to `cache`, in which each sequence must have num_cached rows in every layer of the list.
  // Throws InputError for token ids outside the vocabulary.
  void step(const StepInput& input, LatentCache& cache, model::Probe& probe) const;

  // The logits of rows of a normed state [rows, hidden]: of the main model, or of MTP layer k. [rows, vocab] `probe` may be null.
  [[nodiscard]] model::TensorView logits(const model::TensorView& state,
                                         std::optional<int64_t> mtp_layer = {},
                                         model::Probe* probe = nullptr) const;

  [[nodiscard]] const model::ModelConfig& config() const { return weights_.config(); }

 private:
  class Step;
  struct Head {
    model::Op op;
    std::optional<WeightMatrix> matrix;  // found by the first who asks, if the weights stay
  };

  const model::WeightSource& weights_;
  Rules rules_;
  int num_threads_;
  RunOp run_;
  // What one step leaves for the next; it changes no result. Steps of one Transformer wait for one another.
  mutable std::mutex mutex_;
  mutable std::vector<Head> heads_;  // the logits of the main model, then of each MTP layer
  mutable HalfWeights half_weights_;
  mutable std::vector<Plan> plans_;
  mutable RotationTable rotations_;
};

// The same by-hand loop over MTP inputs that every caller needs: row i of sequence s reads token i + 1 + k, where `following`
// [sequences][>= num MTP layers] holds the tokens after the fed ones.
std::vector<std::vector<int32_t>> shifted_tokens(const std::vector<std::vector<int32_t>>& fed,
                                                 const std::vector<std::vector<int32_t>>& following,
                                                 int64_t num_mtp_layers);

}  // namespace reference
