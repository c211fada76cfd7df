#include "simulator/step_cost.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "model/check.hpp"

namespace simulator {
namespace {

constexpr auto kParts = std::to_array<StepPartInfo>(
    {{StepPart::kAttentionFixed, "attention", "fixed", "layers x fixed time of the module"},
     {StepPart::kAttentionProjections, "attention", "projections", "layers x |weights / memory, FLOPs / peak|_3"},
     {StepPart::kAttentionCache, "attention", "cache", "layers x |cache / memory, FLOPs / peak|_3"},
     {StepPart::kRouter, "ffn", "router", "MoE layers x BF16 GEMM"},
     {StepPart::kExpertsFixed, "ffn", "experts, fixed", "MoE layers x fixed time"},
     {StepPart::kExperts,
      "ffn",
      "experts",
      "MoE layers x |chosen experts of the average rank / memory, FLOPs / peak|_3"},
     {StepPart::kSharedExpert, "ffn", "shared expert", "MoE layers x |weights / memory, FLOPs / peak|_3"},
     {StepPart::kDenseFfn, "ffn", "dense layers", "dense layers x FP8 GEMMs"},
     {StepPart::kHead, "head", "head", "BF16 GEMM"},
     {StepPart::kAllReduce, "communication", "all-reduce", "behind attention and FFN"},
     {StepPart::kDispatch, "communication", "dispatch", "MoE layers x all-to-all of the average rank, FP8"},
     {StepPart::kCombine, "communication", "combine", "MoE layers x all-to-all of the average rank, BF16"},
     {StepPart::kWaiting,
      "communication",
      "waiting",
      "MoE layers x (slowest rank of each - average rank), routing sampled"},
     {StepPart::kPipelineSend, "communication", "pipeline send", "stages - 1"},
     {StepPart::kDrafting, "engine", "MTP drafting", "depth x (one layer and the head)"},
     {StepPart::kInStream, "engine", "in the stream", "(stream factor - 1) x kernels"},
     {StepPart::kEarlyEngine, "engine", "release of 2025", "layers x constant, Blackwell"},
     {StepPart::kLaunches, "engine", "launches", "what 25 launches a layer of 5 us exceed the kernels by"},
     {StepPart::kHost, "engine", "host", "once a step"},
     {StepPart::kHidden, "engine", "hidden by overlap", "all-to-all behind the other half batch"}});

// sum + weight * work.
void add_work(OpWork& sum, const OpWork& work, double weight) {
  for (double OpWork::*member : {&OpWork::weight_bytes,
                                 &OpWork::other_bytes,
                                 &OpWork::weight_flops,
                                 &OpWork::score_flops,
                                 &OpWork::message_bytes,
                                 &OpWork::nvlink_bytes,
                                 &OpWork::network_bytes}) {
    sum.*member += weight * work.*member;
  }
}

}  // namespace

const StepPartInfo& step_part_info(StepPart part) {
  const auto found = std::ranges::find(kParts, part, &StepPartInfo::part);
  CHECK(found != kParts.end());
  return *found;
}

double StepCost::sum_us() const {
  double sum = 0;
  for (const StepLeaf& leaf : leaves) {
    sum += leaf.total_us();
  }
  return sum;
}

double StepCost::sum_us(std::span<const StepPart> parts) const {
  double sum = 0;
  for (const StepLeaf& leaf : leaves) {
    sum += std::ranges::find(parts, leaf.part) != parts.end() ? leaf.total_us() : 0;
  }
  return sum;
}

void StepCost::add_plain(StepPart part, double time_us) {
  if (time_us != 0) {
    leaves.push_back({.part = part, .each_us = time_us});
  }
}

void StepCost::add_totals() {
  total_us = sum_us();
  for (const StepLeaf& leaf : leaves) {
    floor_us += leaf.count * leaf.floor_each_us;
  }
}

StepCost weighted_sum(std::span<const StepCost> costs, double weight) {
  StepCost sum;
  for (const StepCost& cost : costs) {
    std::map<StepPart, size_t> num_seen;
    for (const StepLeaf& leaf : cost.leaves) {
      // The n-th leaf of a part meets the n-th of the sum.
      size_t to_skip = num_seen[leaf.part]++;
      auto same = std::ranges::find_if(
          sum.leaves, [&](const StepLeaf& other) { return other.part == leaf.part && to_skip-- == 0; });
      if (same == sum.leaves.end()) {
        sum.leaves.push_back({.part = leaf.part,
                              .count = leaf.count,
                              .family = leaf.family,
                              .answer = leaf.answer,
                              .source = leaf.source});
        same = sum.leaves.end() - 1;
      }
      same->each_us += weight * leaf.each_us;
      same->floor_each_us += weight * leaf.floor_each_us;
      add_work(same->work, leaf.work, weight);
    }
  }
  sum.add_totals();
  return sum;
}

}  // namespace simulator
