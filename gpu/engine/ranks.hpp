// How one rank reaches the others that share the model with it.
#pragma once

#include <memory>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/comm/token_exchange.hpp"
#include "gpu/engine/backend.hpp"
#include "gpu/engine/peer_exchange.hpp"
#include "model/parallel_plan.hpp"

namespace gpu {

// Null where the rank is alone.
struct Ranks {
  comm::Communicator* world = nullptr;
  std::unique_ptr<comm::Communicator> tp =
      {};  // its calls are in the order of the back end's stream, as those of pp are
  std::unique_ptr<comm::Communicator> ep = {};  // with all slices of the experts, where they are cut; null with `peers`
  std::unique_ptr<comm::Communicator> pp = {};  // by stage
  // How tokens get to their experts, when those are on several ranks: through the host, or by kernels among peers.
  std::unique_ptr<comm::TokenExchange> exchange = {};
  std::unique_ptr<PeerExchange> peers = {};
  std::vector<ExpertPlacement> placements =
      {};  // by layer; of the ranks of ep, or of those that have one slice of the experts

  [[nodiscard]] bool exchange_tokens() const { return exchange != nullptr || peers != nullptr; }
};

// The groups of a layout. Collective over `world`, which has the layout's ranks in the plan's order, as `links` has, through which
// tensors go on the device's own stream; null: the hosts exchange them, in the order of that stream. All must outlive the result like
// `backend`. max_expert_rows: tokens that a rank's experts can get. peers: how they get there; null: through the host.
Ranks connect(comm::Communicator& world,
              comm::Communicator* links,
              const model::ParallelPlan& plan,
              int64_t max_expert_rows,
              std::unique_ptr<PeerExchange> peers,
              Backend& backend);

// Where the routed experts of each layer of a plan lie; empty of layers without.
std::vector<ExpertPlacement> placements_of(const model::ParallelPlan& plan);

}  // namespace gpu
