#include "tools/device/layout_flags.hpp"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "gpu/engine/shard.hpp"
#include "model/check.hpp"
#include "simulator/placement.hpp"
#include "simulator/placement_files.hpp"

namespace tools {
namespace {

constexpr int64_t kMaxDegree = 1 << 16;

}  // namespace

void add_layout_options(CLI::App& app, LayoutFlags& flags) {
  const CLI::Range degree(int64_t{1}, kMaxDegree);
  app.add_option("--tp", flags.tp, "emulated, cuda: ranks that share the heads, dense layers and vocabulary")
      ->check(degree)
      ->capture_default_str();
  app.add_option("--dp", flags.dp, "emulated, cuda: groups of such ranks, each with requests of its own")
      ->check(degree);
  app.add_option("--ep", flags.ep, "emulated, cuda: ranks that share the routed experts (default: tp * dp)")
      ->check(degree);
  app.add_option("--pp", flags.pp, "emulated, cuda: stages of consecutive layers")
      ->check(degree)
      ->capture_default_str();
  app.add_flag("--sp,--sequence-parallel",
               flags.sequence_parallel,
               "emulated, cuda: norms, residual stream and router of each token on one of the tp ranks");
  auto* placement = app.add_option("--placement,--init-expert-location",
                                   flags.placement,
                                   "emulated, cuda: where the routed experts and their copies lie, as dsv3-sim skew "
                                   "--write-sglang or --write-vllm writes it");
  app.add_option("--redundant-experts,--ep-num-redundant-experts,--num-redundant-experts",
                 flags.num_redundant,
                 "emulated, cuda: slots beyond the experts, which hold experts 0, 1, ... again")
      ->check(CLI::Range(int64_t{0}, kMaxDegree))
      ->excludes(placement);
  app.add_option("--ranks", flags.ranks, "emulated, cuda: all ranks, tp * dp * pp")->check(degree);
}

model::ParallelLayout layout_of(const LayoutFlags& flags,
                                const model::ModelConfig& config,
                                std::optional<int64_t> num_ranks) {
  const auto ranks = num_ranks ? num_ranks : flags.ranks;
  if (num_ranks && flags.ranks && *num_ranks != *flags.ranks) {
    model::throw_input_error("--ranks {}: mpirun started {}", *flags.ranks, *num_ranks);
  }
  model::ParallelLayout layout{.tp = flags.tp, .pp = flags.pp, .sequence_parallel = flags.sequence_parallel};
  if (flags.dp) {
    layout.dp = *flags.dp;
  } else if (ranks) {
    layout.dp = std::max<int64_t>(1, *ranks / (flags.tp * flags.pp));
  } else {
    layout.dp = std::max<int64_t>(1, flags.ep.value_or(1) / flags.tp);
  }
  if (ranks && *ranks != layout.num_ranks()) {
    model::throw_input_error(
        "{} ranks, but tp {} * dp {} * pp {} are {}", *ranks, layout.tp, layout.dp, layout.pp, layout.num_ranks());
  }
  layout.ep = flags.ep.value_or(config.n_routed_experts > 0 ? layout.stage_len() : 1);
  (void)gpu::shard_of(model::parallel_plan(config, layout, expert_slots_of(flags, config, layout)), 0);
  return layout;
}

model::ExpertSlots expert_slots_of(const LayoutFlags& flags,
                                   const model::ModelConfig& config,
                                   const model::ParallelLayout& layout) {
  if (flags.placement.empty() && flags.num_redundant == 0) {
    return {};
  }
  const int64_t num_layers = config.num_hidden_layers + config.num_nextn_predict_layers;
  int64_t num_moe_layers = 0;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    num_moe_layers += config.is_moe_layer(layer) ? 1 : 0;
  }
  if (num_moe_layers == 0) {
    model::throw_input_error("--placement, --redundant-experts: the model has no routed experts");
  }
  std::vector<std::vector<int64_t>> of_file;
  auto num_slots = config.n_routed_experts + flags.num_redundant;
  if (!flags.placement.empty()) {
    of_file = simulator::read_expert_slots(flags.placement, num_moe_layers);
    num_slots = static_cast<int64_t>(of_file.back().size());
  }
  const auto in_order =
      simulator::contiguous_placement(config.n_routed_experts, layout.ep, num_slots, true).expert_of_slot;
  model::ExpertSlots slots(static_cast<size_t>(num_layers));
  auto next = of_file.begin();
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (config.is_moe_layer(layer)) {
      slots[static_cast<size_t>(layer)] = next != of_file.end() ? *next++ : in_order;
    }
  }
  return slots;
}

std::string rank_text(const model::ParallelPlan& plan, int64_t rank) {
  const model::RankPlace at = plan.place(rank);
  std::string text = fmt::format("rank {}", rank);
  std::vector<std::string> parts;
  if (plan.layout.pp > 1) {
    parts.push_back(fmt::format("stage {}", at.stage));
  }
  if (plan.layout.dp > 1) {
    parts.push_back(fmt::format("dp {}", at.dp_rank));
  }
  if (plan.layout.tp > 1) {
    parts.push_back(fmt::format("tp {}", at.tp_rank));
  }
  return parts.empty() ? text : fmt::format("{} ({})", text, fmt::join(parts, ", "));
}

}  // namespace tools
