#include "tools/faults.hpp"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <cstring>

#include "reference/numerics/reduce.hpp"
#include "reference/values.hpp"

namespace tools {
namespace {

using model::OpKind;
using model::TensorView;
using reference::OpCall;
using reference::run_op;

// The same weights under a changed config, or with one tensor exchanged.
class ChangedWeights : public model::WeightSource {
 public:
  explicit ChangedWeights(const model::WeightSource& original) : original_(original), config_(original.config()) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] TensorView weight(const std::string& name) const override {
    return name == exchanged_name_ ? exchanged_ : original_.weight(name);
  }

  model::ModelConfig& config() { return config_; }
  void exchange(const std::string& name, TensorView tensor) {
    exchanged_name_ = name;
    exchanged_ = std::move(tensor);
  }

 private:
  const model::WeightSource& original_;
  model::ModelConfig config_;
  std::string exchanged_name_;
  TensorView exchanged_;
};

TensorView run_with(const OpCall& call, const model::WeightSource& weights) {
  return run_op({.rules = call.rules,
                 .workload = call.workload,
                 .weights = weights,
                 .op = call.op,
                 .inputs = call.inputs,
                 .expert_outputs = call.expert_outputs,
                 .num_threads = call.num_threads,
                 .flops = call.flops});
}

TensorView group_score_is_the_maximum(const OpCall& call) {
  ChangedWeights changed(call.weights);
  changed.config().topk_method = model::TopkMethod::kGroupLimitedGreedy;
  return run_with(call, changed);
}

TensorView bias_is_in_the_weights(const OpCall& call) {
  const auto bias = reference::load<double>(
      call.weights.weight(fmt::format("model.layers.{}.mlp.gate.e_score_correction_bias", call.op.layer)));
  auto scores = reference::load<double>(call.inputs[0]);
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] += bias[i % bias.size()];
  }
  OpCall changed = call;
  changed.inputs[0] = call.rules.exact()
                          ? reference::store<double>(call.inputs[0].shape, scores, model::DType::kF64)
                          : reference::store<float>(
                                call.inputs[0].shape, std::vector<float>(scores.begin(), scores.end()), call.inputs[0].dtype);
  return run_op(changed);
}

TensorView mscale_is_missing(const OpCall& call) {
  ChangedWeights changed(call.weights);
  if (changed.config().yarn) {
    changed.config().yarn->mscale_all_dim = 0;
  }
  return run_with(call, changed);
}

// Every block of the weight takes the scale of its right neighbour (the last one that of the first).
TensorView scale_of_the_neighbour(const OpCall& call) {
  const std::string name = call.op.weights[0] + "_scale_inv";
  const TensorView scale = call.weights.weight(name);
  const auto cols = static_cast<size_t>(scale.shape[1]);
  const auto width = static_cast<size_t>(model::dtype_bytes(scale.dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(scale.bytes.size());
  for (size_t i = 0; i < scale.bytes.size() / width; ++i) {
    const size_t from = i / cols * cols + (i % cols + 1) % cols;
    std::memcpy(bytes->data() + i * width, scale.bytes.data() + from * width, width);
  }
  ChangedWeights changed(call.weights);
  changed.exchange(name, {scale.dtype, scale.shape, *bytes, bytes});
  return run_with(call, changed);
}

// The last 16 products of every sum are left out, as by a loop that stops at a multiple of its tile.
TensorView tail_of_k_is_dropped(const OpCall& call) {
  constexpr size_t kDropped = 16;
  const TensorView weight = call.weights.weight(call.op.weights[0]);
  const auto row_bytes = static_cast<size_t>(weight.row_len() * model::dtype_bytes(weight.dtype));
  const auto tail_bytes = kDropped * static_cast<size_t>(model::dtype_bytes(weight.dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(weight.bytes.begin(), weight.bytes.end());
  for (size_t end = row_bytes; end <= bytes->size(); end += row_bytes) {
    std::memset(bytes->data() + end - tail_bytes, 0, tail_bytes);
  }
  ChangedWeights changed(call.weights);
  changed.exchange(call.op.weights[0], {weight.dtype, weight.shape, *bytes, bytes});
  return run_with(call, changed);
}

// Applies `faulty` to ops whose id matches the glob; all others run as they should.
Fault make_fault(std::string id, std::string description, std::string starts_at, std::function<TensorView(const OpCall&)> faulty) {
  const auto run = [glob = starts_at, faulty = std::move(faulty)](const OpCall& call) {
    return fnmatch(glob.c_str(), call.op.id.c_str(), 0) == 0 ? faulty(call) : run_op(call);
  };
  return {std::move(id), std::move(description), std::move(starts_at), "mini", run};
}

}  // namespace

const std::vector<Fault>& all_faults() {
  static const std::vector<Fault> faults{
      make_fault("bb-02", "the router's bias is also in the mixing weights", "layer.*.moe.topk_weights", bias_is_in_the_weights),
      make_fault("bb-03",
                 "a group's score is its largest biased score instead of the sum of the two largest",
                 "layer.*.moe.group_ids",
                 group_score_is_the_maximum),
      make_fault("bb-18", "the softmax scale lacks mscale squared", "layer.*.attn.probs", mscale_is_missing),
      make_fault("k-01",
                 "the output projection of layer 1 uses each weight block with the next block's scale",
                 "layer.1.attn.o_proj",
                 scale_of_the_neighbour),
      make_fault("k-02", "kv_a of layer 1 drops the last 16 products of every sum", "layer.1.attn.kv_a", tail_of_k_is_dropped),
  };
  return faults;
}

const Fault& find_fault(const std::string& id) {
  std::vector<std::string> known;
  for (const Fault& fault : all_faults()) {
    if (fault.id == id) {
      return fault;
    }
    known.push_back(fault.id);
  }
  model::throw_input_error("--fault {}: no such fault; known: {}", id, fmt::join(known, ", "));
}

}  // namespace tools
