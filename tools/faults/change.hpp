// What planted faults are made of: an op run with other weights, another config, edited inputs or an edited output.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/weight_source.hpp"
#include "reference/op_call.hpp"
#include "tools/faults.hpp"

namespace tools::faults {

using model::TensorView;
using reference::OpCall;
using Values = std::vector<double>;
using FaultyOp = std::function<TensorView(const OpCall&)>;

// The same weights under a changed config, or with tensors exchanged.
class ChangedWeights : public model::WeightSource {
 public:
  explicit ChangedWeights(const model::WeightSource& original) : original_(original), config_(original.config()) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] TensorView weight(const std::string& name) const override {
    const auto found = exchanged_.find(name);
    return found == exchanged_.end() ? original_.weight(name) : found->second;
  }

  model::ModelConfig& config() { return config_; }
  void exchange(const std::string& name, TensorView tensor) { exchanged_[name] = std::move(tensor); }

 private:
  const model::WeightSource& original_;
  model::ModelConfig config_;
  std::map<std::string, TensorView> exchanged_;
};

TensorView run_with(const OpCall& call, const model::WeightSource& weights);

// Faulty ops, to be given to make_fault.
FaultyOp with_config(std::function<void(model::ModelConfig&)> change);
// The weight of the op (the last one, if there are several), or its scale companion, exchanged for change(it).
FaultyOp with_weight(std::function<TensorView(const TensorView&)> change);
FaultyOp with_scale(std::function<TensorView(const TensorView&)> change);
// Input number `input` exchanged for change(it, call); it stays in its format.
FaultyOp with_input(size_t input, std::function<TensorView(const TensorView&, const OpCall&)> change);
// The right output, changed.
FaultyOp with_output(std::function<TensorView(const TensorView&, const OpCall&)> change);

// Elements as doubles through `change`, rounded back to the tensor's format.
TensorView edited(const TensorView& tensor, const std::function<void(Values&)>& change);
// Rounds to the format of `like`.
TensorView from_values(const Values& values, model::Shape shape, model::DType dtype);
// Every element multiplied.
TensorView scaled(const TensorView& tensor, double factor);
// Row i of the result is row from(i) of the tensor, bits untouched; likewise columns of [rows, columns].
TensorView rows_from(const TensorView& tensor, const std::function<int64_t(int64_t)>& from);
TensorView columns_from(const TensorView& tensor, const std::function<int64_t(int64_t)>& from);

// Cut off below BF16 instead of rounding to nearest.
double truncated_to_bf16(double value);

// Where a fault shows: a checkpoint that needs no download, and the cases.
struct Shown {
  std::string fixture = "synthetic:nano";
  std::vector<golden::Case> cases = {};
};
// A prompt of different tokens from an empty cache. `step` adds a decode step after it, `drafts` that many drafted tokens for MTP.
std::vector<golden::Case> prompt(int32_t num_tokens);
std::vector<golden::Case> prompt_and_step(int32_t num_tokens);
std::vector<golden::Case> prompt_with_drafts(int32_t num_tokens, int32_t num_drafts);
// Two sequences at once.
std::vector<golden::Case> batch_of_two();
Shown on_nano();       // a prompt
Shown on_nano_step();  // a prompt and a decode step, whose attention is absorbed
Shown on_nano_mtp();   // a prompt and its drafts
Shown on_ragged();
Shown on_notv3();
Shown on_edge();  // tokens 0, 1, 2 and 4 are the degenerate ones

// Applies `faulty` to ops whose id matches the glob; all others run as they should.
Fault make_fault(std::string id, std::string description, std::string starts_at, Shown shown, FaultyOp faulty);
// The same for an op that gets hold of what it should not read: values that ops matching `remembered` gave before in this run,
// by id. One run at a time.
using Memory = std::map<std::string, TensorView>;
Fault make_fault_with_memory(std::string id,
                             std::string description,
                             std::string starts_at,
                             Shown shown,
                             std::string remembered,
                             std::function<TensorView(const OpCall&, const Memory&)> faulty);

// By area; tools/faults.cpp joins them.
std::vector<Fault> choice_faults();     // router: which experts
std::vector<Fault> weighting_faults();  // router: scores and weights
std::vector<Fault> expert_faults();     // experts, activation, combine
std::vector<Fault> scale_faults();      // weights and their scales
std::vector<Fault> quantiser_faults();  // activations of an FP8 linear
std::vector<Fault> product_faults();    // sums and outputs of a linear
std::vector<Fault> score_faults();      // attention scores and softmax
std::vector<Fault> value_faults();      // attention probabilities times values
std::vector<Fault> rotation_faults();
std::vector<Fault> cache_faults();
std::vector<Fault> norm_faults();
std::vector<Fault> stream_faults();  // embedding, residual, head
std::vector<Fault> mtp_faults();

}  // namespace tools::faults
