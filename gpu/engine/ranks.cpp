#include "gpu/engine/ranks.hpp"

#include "gpu/portable/types.hpp"
#include "model/check.hpp"

namespace gpu {
namespace {

comm::ExchangeFormat exchange_format(const model::ParallelPlan& plan, int64_t max_expert_rows) {
  const model::ModelConfig& config = plan.config;
  const bool fp8 = config.quantization.has_value();
  const int64_t num_slices = plan.layout.expert_tp();
  const size_t output_len = num_slices > 1 ? sizeof(float) : sizeof(half16);
  return {.num_slices = static_cast<int>(num_slices),
          .k = static_cast<int>(config.num_experts_per_tok),
          .row_bytes = config.hidden_size * static_cast<int64_t>(fp8 ? sizeof(fp8_e4m3) : sizeof(half16)),
          .num_scales = fp8 ? (config.hidden_size + kScaleBlockLen - 1) / kScaleBlockLen : 0,
          .output_bytes = config.hidden_size * static_cast<int64_t>(output_len),
          .capacity = max_expert_rows};
}

}  // namespace

std::vector<ExpertPlacement> placements_of(const model::ParallelPlan& plan) {
  const model::ModelConfig& config = plan.config;
  const auto num_experts = static_cast<int>(config.n_routed_experts);
  const auto num_ranks = static_cast<int>(plan.layout.ep);
  const int64_t num_layers = config.num_hidden_layers + config.num_nextn_predict_layers;
  std::vector<ExpertPlacement> placements(static_cast<size_t>(num_layers));
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (!config.is_moe_layer(layer)) {
      continue;
    }
    auto& placement = placements[static_cast<size_t>(layer)];
    if (plan.expert_of_slot.empty()) {
      placement = contiguous_placement(num_experts, num_ranks);
    } else {
      const auto& slots = plan.expert_of_slot[static_cast<size_t>(layer)];
      placement = placement_of_slots(std::vector<int32_t>(slots.begin(), slots.end()), num_experts, num_ranks);
    }
  }
  return placements;
}

Ranks connect(comm::Communicator& world,
              comm::Communicator* links,
              const model::ParallelPlan& plan,
              int64_t max_expert_rows,
              std::unique_ptr<PeerExchange> peers,
              Backend& backend) {
  const model::ParallelLayout& layout = plan.layout;
  CHECK_EQ(static_cast<int64_t>(world.size()), layout.num_ranks());
  const int rank = world.rank();
  const auto stage_len = static_cast<int>(layout.stage_len());
  comm::Communicator& tensors = links != nullptr ? *links : world;
  // Calls of the group are done in the order of the back end's stream.
  const auto split = [&](int colour, const char* name) {
    auto group = tensors.split(colour, rank, name);
    if (links == nullptr) {
      group->set_queue([&backend](std::function<void()> work) { backend.run_on_host(std::move(work)); });
    }
    return group;
  };
  Ranks ranks{.world = &world};
  if (layout.tp > 1) {
    ranks.tp = split(rank / static_cast<int>(layout.tp), "tp");
  }
  const auto num_exchanging = static_cast<int>(layout.ep * layout.expert_tp());
  if (num_exchanging > 1 && plan.config.n_routed_experts > 0) {
    ranks.ep = tensors.split(rank / num_exchanging, rank, "ep");
    ranks.placements = placements_of(plan);
    if (peers != nullptr) {
      ranks.peers = std::move(peers);
      ranks.peers->connect(std::move(ranks.ep), ranks.placements, backend);
    } else {
      ranks.exchange = std::make_unique<comm::TokenExchange>(*ranks.ep, exchange_format(plan, max_expert_rows));
    }
  }
  if (layout.pp > 1) {
    ranks.pp = split(rank % stage_len, "pp");
  }
  if (ranks.peers != nullptr) {  // no kernel may raise a flag before every rank has cleared its own
    backend.meet_peers();
    world.barrier();
  }
  return ranks;
}

}  // namespace gpu
