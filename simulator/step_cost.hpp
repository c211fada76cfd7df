// The time of a decode step or of a prompt as a list of leaves that add up to the whole. What the leaves are is for step_model.hpp.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "simulator/op_fit.hpp"
#include "simulator/op_table.hpp"

namespace simulator {

enum class StepPart {
  kAttentionFixed,
  kAttentionProjections,
  kAttentionCache,  // in prefill: scores and values of the prompt
  kRouter,
  kExpertsFixed,
  kExperts,
  kSharedExpert,
  kDenseFfn,
  kHead,
  kAllReduce,
  kDispatch,
  kCombine,
  kWaiting,  // of the average rank for the slowest, layer by layer
  kPipelineSend,
  kDrafting,  // MTP layers and their heads
  kInStream,  // what kernels take longer in the stream than alone
  kEarlyEngine,
  kLaunches,  // without CUDA graphs
  kHost,
  kHidden,  // all-to-all behind computation: negative
};

struct StepPartInfo {
  StepPart part;
  std::string_view group;  // "attention", "ffn", "head", "communication", "engine"
  std::string_view name;
  std::string_view formula;
};

const StepPartInfo& step_part_info(StepPart part);

struct StepLeaf {
  StepPart part = StepPart::kHost;
  double count = 1;  // calls in the step
  double each_us = 0;
  OpWork work = {};  // of one call
  double floor_each_us = 0;
  std::optional<OpFamily> family = {};  // whose constants were used
  std::optional<OpAnswer> answer = {};  // of the family's table, where that gave the time
  std::string_view source = {};         // of a time that no family has; lives as long as the curves

  [[nodiscard]] double total_us() const { return count * each_us; }
};

struct StepCost {
  std::vector<StepLeaf> leaves;
  double total_us = 0;  // of the leaves in their order
  double floor_us = 0;

  // Of the leaves so far.
  [[nodiscard]] double sum_us() const;
  [[nodiscard]] double sum_us(std::span<const StepPart> parts) const;
  // One leaf of one call; none where there is no time.
  void add_plain(StepPart part, double time_us);
  void add_totals();
};

// The weighted sum of costs, part by part.
StepCost weighted_sum(std::span<const StepCost> costs, double weight);

}  // namespace simulator
