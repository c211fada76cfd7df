// Appends ops to a list and works out what each one costs: shapes, weights and bytes. The wiring is op_list.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/op_list.hpp"

namespace model {

using Ids = std::vector<std::string>;

class ListBuilder {
 public:
  // Both must outlive the builder.
  ListBuilder(const ModelConfig& config, const Workload& workload);

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const Workload& workload() const { return workload_; }
  [[nodiscard]] int64_t num_tokens() const { return tokens_; }
  // Rows of all experts together: every token is at num_experts_per_tok of them.
  [[nodiscard]] int64_t routed_rows() const { return tokens_ * config_.num_experts_per_tok; }

  // Appends and returns the id. Weight bytes follow from the weights, activation bytes from the shapes of inputs and output.
  std::string add(Op op);
  std::string norm(const std::string& id, Ids inputs, const std::string& weight, int64_t hidden);
  // `rows` differs from the number of tokens for kv_b, which works on every cached position.
  std::string linear(const std::string& id, const std::string& input, const std::string& weight, int64_t rows);
  std::string linear(const std::string& id, const std::string& input, const std::string& weight);
  // One part for each expert: `id` and `weight` hold '*' where the part has the expert's number.
  std::string expert_linear(const std::string& id, Ids inputs, const std::string& weight);
  std::string swiglu(const std::string& id, const std::string& gate, const std::string& up, int64_t dim);

  // A value that comes from outside the list: [tokens, row_len] bf16.
  void give(const std::string& id, int64_t row_len);

  // Ops after this belong to the layer (or to none, -1).
  void set_layer(int64_t layer) { layer_ = layer; }
  // The op appended last, for costs that only its author knows.
  Op& last() { return ops_.back(); }
  std::vector<Op> take() { return std::move(ops_); }

  [[nodiscard]] const Shape& weight_shape(const std::string& name) const { return find_weight(name).shape; }
  // With its scales.
  [[nodiscard]] int64_t weight_bytes(const std::string& name) const;

 private:
  struct Weight {
    Shape shape;
    int64_t bytes = 0;
    std::string scale;
  };

  [[nodiscard]] const Weight& find_weight(const std::string& name) const;
  // What reading this input costs outside the cache.
  [[nodiscard]] int64_t input_bytes(const Op& op, const std::string& input) const;

  const ModelConfig& config_;
  const Workload& workload_;
  int64_t tokens_ = 0;
  int64_t layer_ = -1;
  std::vector<Op> ops_;
  std::map<std::string, Weight> weights_;
  std::map<std::string, int64_t> value_bytes_;
  std::map<std::string, int64_t> row_bytes_;
};

// The expert's number in place of the '*'. CheckError if there is none.
std::string with_expert(std::string name, int64_t expert);

}  // namespace model
