// Which experts every token visited, with which weights, as the CSV that the simulator reads (docs/contracts.md, section 5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/generate/step_rows.hpp"

namespace tools {

// Collects the rows in memory: about 30 bytes for each choice of an expert.
class RoutingTrace : public reference::StepProbe {
 public:
  // `prompt_lens`: of each request; what lies before is prefill, the rest decode. `config_hash` goes into the header.
  RoutingTrace(const std::string& config_hash, std::vector<int64_t> prompt_lens);

  void enter_step(std::vector<reference::RowOrigin> rows) override;
  [[nodiscard]] bool wants(const model::Op& op) const override {
    return op.kind == model::OpKind::kRouterExperts || op.kind == model::OpKind::kRouterWeights;
  }
  void see(const model::Op& op, const model::TensorView& value) override;

  // The file so far.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<int64_t> prompt_lens_;
  std::vector<reference::RowOrigin> rows_;
  model::TensorView topk_ids_;
};

}  // namespace tools
