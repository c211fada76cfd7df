// What the ops of one case of a dump can be recomputed from: its own tensors, and inside a run of ops what lies between them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "golden/case_values.hpp"
#include "golden/recompute.hpp"

namespace golden {

// Groups or experts: ids, not values.
bool is_choice(const model::Op& op);

// What recomputing one op touched.
struct Trace {
  std::vector<std::string> reads;    // tensors of the dump
  std::set<std::string> recomputed;  // ops inside the run, the judged one excluded
  std::set<model::OpKind> kinds;
  std::string missing;  // first tensor that was needed and could not be had
};

// `block` is one of blocks_of(op) (golden/runs.hpp): a run never leaves it. Results are empty when something is missing; trace.missing
// says what. Arguments must outlive the object.
class CaseInputs {
 public:
  CaseInputs(const model::ModelConfig& config,
             const CaseValues& values,
             const model::Workload& workload,
             const Recompute& recompute);

  // In order; grouped ops are the parts of the experts that the dump's routing (else the golden's) visits.
  [[nodiscard]] const std::vector<model::Op>& ops() const { return ops_; }
  // What is to be said besides, for example cache rows taken from the golden run.
  [[nodiscard]] const std::set<std::string>& notes() const { return notes_; }

  // What is wrong with the shape or format of a tensor of the dump; empty if nothing is.
  [[nodiscard]] std::string malformed(const model::Op& op, const model::TensorView& tensor) const;
  // The dump's tensor if other ops can be recomputed from it; null and a reason in trace.missing if it is absent or malformed.
  const model::TensorView* usable(const std::string& id, Trace& trace) const;

  // Of an op under a variant.
  std::optional<model::Estimate> estimate(const model::Op& op,
                                          const std::string& block,
                                          const std::string& variant,
                                          Trace& trace);
  // A tensor as the dump has it, or as it follows from the dump by the profile's own rules.
  std::optional<model::Estimate> value(const std::string& id, const std::string& block, Trace& trace);
  // An op's stored result on the dump's inputs, by the profile and in exact arithmetic.
  std::optional<model::TensorView> bits(const model::Op& op, const std::string& block);
  std::optional<model::TensorView> exact(const model::Op& op, const std::string& block);

  // Whether the golden file, which holds only a hash of this op, says that the dump computed it from the golden run's inputs to the
  // golden run's bits: then there is nothing to recompute.
  [[nodiscard]] bool is_golden_step(const model::Op& op) const;

 private:
  void expand(const std::vector<model::Op>& ops);
  // Inputs of an op, from the dump or recomputed inside `block`. compute(op, inputs) gives a stored value of an op inside the run.
  template <typename Tensor, typename Give, typename Compute>
  std::optional<OpInputs<Tensor>> gather(
      const model::Op& op, const std::string& block, const Give& give, const Compute& compute, Trace& trace);
  template <typename Tensor, typename Give, typename Compute>
  std::optional<Tensor> value_of(
      const std::string& id, const std::string& block, const Give& give, const Compute& compute, Trace& trace);
  [[nodiscard]] model::Op with_skipped_combine(const model::Op& op, Trace& trace) const;
  using ComputeBits = std::function<model::TensorView(const model::Op&, const OpInputs<model::TensorView>&)>;
  std::optional<model::TensorView> computed(const model::Op& op, const std::string& block, const ComputeBits& compute);

  const model::ModelConfig& config_;
  const CaseValues& values_;
  const model::Workload& workload_;
  const Recompute& recompute_;
  std::vector<model::Op> ops_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::vector<int64_t>> experts_;  // grouped id -> experts that have a part
  std::set<std::string> notes_;
};

}  // namespace golden
