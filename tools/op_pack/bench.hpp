// The place where one op is run alone: its request, weights held in memory, and the reference's value and bound side by side.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/weight_source.hpp"
#include "reference/estimate_call.hpp"
#include "reference/op_call.hpp"
#include "tools/op_pack/pack.hpp"
#include "tools/op_pack/samples.hpp"
#include "tools/record.hpp"

namespace tools::op_pack {

struct PackRequest {
  std::string kind;
  std::string shape;       // "m=4,k=512": the keys that differ from the defaults
  std::string checkpoint;  // empty: random weights
  int64_t layer = -1;      // of the checkpoint
  std::string op;          // name inside the layer, "attn.q_a"; empty: the kind's own default
  ModeFlags mode;
  std::string variant;  // name of a rule variant; empty: the profile's own rules
  uint64_t seed = 0;
  int num_threads = 1;
};

// Numbers by key; lists are written 3:0:5.
class ShapeValues {
 public:
  void set(const std::string& key, std::vector<int64_t> values) { values_[key] = std::move(values); }
  [[nodiscard]] int64_t operator[](const std::string& key) const { return values_.at(key).front(); }
  [[nodiscard]] const std::vector<int64_t>& list(const std::string& key) const { return values_.at(key); }
  [[nodiscard]] nlohmann::ordered_json json() const;

 private:
  std::map<std::string, std::vector<int64_t>> values_;
};

class MemoryWeights : public model::WeightSource {
 public:
  explicit MemoryWeights(model::ModelConfig config) : config_(std::move(config)) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override;
  void put(const std::string& name, model::TensorView tensor) { tensors_[name] = std::move(tensor); }

 private:
  model::ModelConfig config_;
  std::map<std::string, model::TensorView> tensors_;
};

// A tensor as the reference stores it, and what is known about any legal one.
struct Value {
  model::TensorView stored;
  model::Estimate estimate;
  bool is_given = false;
};
Value given_value(const model::TensorView& tensor);
// The same elements under another shape.
Value reshaped(Value value, const model::Shape& shape);

// What a maker of a pack works with. The sizes in `config` are those of the op.
struct Bench {
  const PackRequest& request;
  ShapeValues shape;
  reference::Rules rules;
  Samples samples;
  const model::WeightSource* checkpoint;  // null: random weights
  MemoryWeights weights;

  [[nodiscard]] const model::ModelConfig& config() const { return weights.config(); }
  // The op under the rules, with the bound that no legal implementation leaves but once in 10^9 packs.
  [[nodiscard]] Value run(const model::Op& op,
                          const std::vector<Value>& inputs,
                          const model::Workload& workload = {},
                          const std::vector<Value>& expert_outputs = {}) const;
  // Its bits alone, for choices.
  [[nodiscard]] model::TensorView bits(const model::Op& op, const std::vector<Value>& inputs) const;
};

}  // namespace tools::op_pack
