// Judges the ops of one case of a dump, one after the other.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

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
  [[nodiscard]] const std::set<std::string>& notes() const { return notes_; }

 private:
  // What recomputing one op touched.
  struct Trace {
    std::vector<std::string> reads;    // tensors of the dump
    std::set<std::string> recomputed;  // ops inside the run, the judged one excluded
    std::set<model::OpKind> kinds;
    std::string missing;  // first tensor that was needed and could not be had
  };

  // Inputs of an op, from the dump or recomputed inside `block`; empty when something is missing (trace.missing says what).
  // compute(op, inputs) gives a stored value of an op inside the run.
  template <typename Tensor, typename Give, typename Compute>
  std::optional<OpInputs<Tensor>> gather(
      const model::Op& op, const std::string& block, const Give& give, const Compute& compute, Trace& trace);
  template <typename Tensor, typename Give, typename Compute>
  std::optional<Tensor> value_of(
      const std::string& id, const std::string& block, const Give& give, const Compute& compute, Trace& trace);

  [[nodiscard]] model::Op with_skipped_combine(const model::Op& op, Trace& trace) const;
  // Estimate of an op under a variant; empty if it cannot be recomputed inside the block.
  std::optional<model::Estimate> estimate(const model::Op& op,
                                          const std::string& block,
                                          const std::string& variant,
                                          Trace& trace);
  // compute(op, inputs) on the dump's inputs; empty if they cannot be had.
  using ComputeBits = std::function<model::TensorView(const model::Op&, const OpInputs<model::TensorView>&)>;
  std::optional<model::TensorView> computed(const model::Op& op, const std::string& block, const ComputeBits& compute);
  std::optional<model::TensorView> bits(const model::Op& op, const std::string& block);
  [[nodiscard]] std::optional<double> oracle_ratio(const model::Op& op, const model::TensorView& got);

  // Whether the golden file, which holds only a hash of this op, says that the dump computed it from the golden run's inputs to the
  // golden run's bits: then there is nothing to recompute.
  [[nodiscard]] bool is_golden_step(const model::Op& op) const;
  OpResult judge_op(const model::Op& op, const model::TensorView& got);
  void judge_values(const model::Op& op, const std::string& block, const model::TensorView& got, OpResult& result);
  void judge_choice(const model::Op& op, const std::string& block, const model::TensorView& got, OpResult& result);
  void compare_free(const model::Op& op, const model::TensorView& got, OpResult& result) const;
  void compare_reduced(const model::Op& op, const model::TensorView& got, OpResult& result) const;
  [[nodiscard]] Divergence divergence(const model::Op& op, const Trace& trace) const;
  // The dump's tensor if other ops can be recomputed from it; null and a reason in trace.missing if it is absent or malformed.
  const model::TensorView* usable(const std::string& id, Trace& trace) const;
  // What is wrong with the shape or format of a tensor of the dump; empty if nothing is.
  [[nodiscard]] std::string malformed(const model::Op& op, const model::TensorView& tensor) const;
  // Rows of final_norm and logits that the dump holds, when the estimate has all of them.
  [[nodiscard]] model::Estimate kept_rows(const model::Op& op,
                                          model::Estimate estimate,
                                          const model::TensorView& got) const;
  void expand(const std::vector<model::Op>& ops);

  const model::ModelConfig& config_;
  const CaseValues& values_;
  const model::Workload& workload_;
  const Recompute& recompute_;
  double num_sigmas_;
  bool with_oracle_ratio_;
  std::vector<model::Op> ops_;  // parts in place of grouped ops
  std::map<std::string, size_t> index_;
  std::map<std::string, std::vector<int64_t>> experts_;  // grouped id -> experts that have a part
  std::set<std::string> spanned_;                        // recomputed inside a judged run
  std::set<std::string> notes_;
};

}  // namespace golden
