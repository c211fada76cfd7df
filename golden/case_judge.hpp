// Judges the ops of one case of a dump, one after the other.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "golden/case_inputs.hpp"
#include "golden/case_values.hpp"
#include "golden/element_test.hpp"
#include "golden/recompute.hpp"
#include "golden/verdict.hpp"

namespace golden {

class CaseJudge {
 public:
  CaseJudge(const model::ModelConfig& config,
            const CaseValues& values,
            const model::Workload& workload,
            const Recompute& recompute,
            double num_sigmas,
            bool with_oracle_ratio);

  // One result for each op that the dump holds or should hold, in order.
  [[nodiscard]] std::vector<OpResult> judge();
  // What is to be said besides, for example cache rows taken from the golden run.
  [[nodiscard]] const std::set<std::string>& notes() const { return inputs_.notes(); }

 private:
  [[nodiscard]] std::optional<double> oracle_ratio(const model::Op& op, const model::TensorView& got);

  OpResult judge_op(const model::Op& op, const model::TensorView& got);
  void judge_values(const model::Op& op, const std::string& block, const model::TensorView& got, OpResult& result);
  void judge_choice(const model::Op& op, const std::string& block, const model::TensorView& got, OpResult& result);
  void compare_free(const model::Op& op, const model::TensorView& got, OpResult& result) const;
  void compare_reduced(const model::Op& op, const model::TensorView& got, OpResult& result) const;
  [[nodiscard]] Divergence divergence(const model::Op& op, const Trace& trace) const;
  // Rows of final_norm and logits that the dump holds, when the estimate has all of them.
  [[nodiscard]] model::Estimate kept_rows(const model::Op& op,
                                          model::Estimate estimate,
                                          const model::TensorView& got) const;

  const model::ModelConfig& config_;
  const CaseValues& values_;
  const model::Workload& workload_;
  const Recompute& recompute_;
  double num_sigmas_;
  bool with_oracle_ratio_;
  CaseInputs inputs_;
  std::set<std::string> spanned_;  // recomputed inside a judged run
};

}  // namespace golden
