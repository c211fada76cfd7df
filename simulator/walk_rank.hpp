// What one rank has of an op: how tensor, expert and sequence parallelism cut its output, weights and work.
#pragma once

#include <map>
#include <string>

#include "model/parallel_plan.hpp"
#include "simulator/walk.hpp"

namespace simulator {

class RankView {
 public:
  RankView(const model::ParallelPlan& plan, const StepShape& shape);

  // `op` over all DP ranks, `own` the same op over one.
  [[nodiscard]] WalkStep share(const model::Op& op, const model::Op& own) const;

  // Routed copies travel between ranks; otherwise every rank of a TP group sees all tokens and works for its own experts.
  [[nodiscard]] bool has_alltoall() const;
  // Token rows of a MoE layer that each TP rank keeps are 1 / this, from the attention's output (sequence parallelism) or from the
  // routed experts' output (all-to-all) on.
  [[nodiscard]] int64_t token_split(const model::Op& op) const;
  [[nodiscard]] const model::ParallelPlan& plan() const { return plan_; }
  [[nodiscard]] const StepShape& shape() const { return shape_; }
  [[nodiscard]] int64_t stage_of(const model::Op& op) const;

 private:
  [[nodiscard]] const model::TensorSplit& split_of(const std::string& weight) const;
  void cut_linear(const model::Op& own, WalkStep& step) const;
  void cut_heads(WalkStep& step, size_t dimension) const;
  void cut_experts(const model::Op& op, const model::Op& own, WalkStep& step) const;

  const model::ParallelPlan& plan_;
  StepShape shape_;
  std::map<std::string, model::TensorSplit> splits_;  // of all weights but experts other than the first
};

}  // namespace simulator
