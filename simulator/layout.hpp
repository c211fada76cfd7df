// How the GPUs of a deployment share the work, as operators write it: degrees by name, the spellings of serving engines, and
// shorthand like "dep8". What is possible is model/parallel_plan's business; this says what would be.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/parallel_plan.hpp"

namespace simulator {

// What was said; the rest follows.
struct LayoutRequest {
  std::optional<int64_t> tp = {};
  std::optional<int64_t> ep = {};
  std::optional<int64_t> pp = {};
  std::optional<int64_t> dp = {};
  std::optional<int64_t> moe_tp = {};  // aiconfigurator: ranks that share an expert
  bool sequence_parallel = false;
  bool expert_parallel = false;  // vLLM: experts over all ranks of a stage
  bool dp_inside_tp = false;     // SGLang's DP attention: tp counts the ranks of all dp groups
};

// "tp8", "tp4pp2", "dep8" (DP attention, experts over all 8), "tep8" (TP attention, experts over all 8), "tp4dp8ep32sp": parts in
// any order, each once. Throws InputError.
LayoutRequest parse_shorthand(const std::string& text);

// Fills in what `base` leaves open. Throws InputError where both say the same degree.
LayoutRequest merged(const LayoutRequest& base, const LayoutRequest& more);

// tp, pp and dp default to 1, ep to tp * dp with DP attention and to 1 without. Throws InputError for a contradiction.
model::ParallelLayout resolve(const LayoutRequest& request);

// "tp4 pp1 dp8 ep32 sp".
std::string layout_text(const model::ParallelLayout& layout);

// parallel_plan() whose refusal also says which single change would make the layout possible. Throws InputError.
model::ParallelPlan plan_layout(const model::ModelConfig& config, const model::ParallelLayout& layout);

// The same refusal without building the plan, in a millisecond: for estimates. `redundant_experts` more slots than experts; slots have
// to divide by ep. Throws InputError that says which number of redundant experts would work.
void check_layout(const model::ModelConfig& config, const model::ParallelLayout& layout, int64_t redundant_experts);

}  // namespace simulator
