// Which experts every token visited, with which weights, as the CSV that the simulator reads (docs/contracts.md, section 5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/generate/step_rows.hpp"

namespace tools {

// One expert that a token visits.
struct RoutedChoice {
  int64_t step = 0;  // of the rank: steps of all ranks of a job are counted alike
  int64_t layer = 0;
  int64_t request = 0;
  int64_t position = 0;
  int32_t slot = 0;
  int32_t expert = 0;
  double weight = 0;
};

// Collects the choices in memory.
class RoutingTrace : public reference::StepProbe {
 public:
  // `prompt_lens`: of each request; what lies before is prefill, the rest decode. `config_hash` goes into the header.
  RoutingTrace(const std::string& config_hash, std::vector<int64_t> prompt_lens);

  void enter_step(std::vector<reference::RowOrigin> rows) override;
  [[nodiscard]] bool wants(const model::Op& op) const override {
    return op.kind == model::OpKind::kRouterExperts || op.kind == model::OpKind::kRouterWeights;
  }
  void see(const model::Op& op, const model::TensorView& value) override;

  [[nodiscard]] const std::vector<RoutedChoice>& choices() const { return choices_; }
  // Adds what other ranks saw, of layers or requests of their own: step by step, in a step layer by layer, in a layer first those that
  // decode, then those that read their prompts, each by request: the order of one rank that has all requests in every step.
  void merge(const std::vector<RoutedChoice>& others);

  // The file so far.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] bool is_prefill(const RoutedChoice& choice) const;

  std::string header_;
  std::vector<RoutedChoice> choices_;
  int64_t num_steps_ = 0;
  std::vector<int64_t> prompt_lens_;
  std::vector<reference::RowOrigin> rows_;
  model::TensorView topk_ids_;
};

}  // namespace tools
