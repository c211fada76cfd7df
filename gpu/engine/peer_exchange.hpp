// Tokens to the ranks that have their experts, and the experts' outputs back, by kernels that reach into those ranks' memory (docs/gpu.md,
// "Kernels of many ranks"). Nothing passes through the host. What gpu/comm/token_exchange does, for devices that are peers.
#pragma once

#include <memory>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/engine/backend.hpp"
#include "gpu/engine/memory_plan.hpp"
#include "gpu/engine/workspace.hpp"
#include "gpu/kernels/dispatch.cuh"
#include "gpu/kernels/pull_combine.cuh"

namespace gpu {

class PeerExchange {
 public:
  // max_tokens: of each rank, in one step. What tokens are sent into is of `workspace`, as large as all ranks together can fill it; what
  // else is needed is added to `memory`. Both must outlive this. For experts that are whole.
  PeerExchange(const model::ParallelPlan& plan,
               const Shard& shard,
               int64_t max_tokens,
               const Workspace& workspace,
               MemoryPlan& memory);
  PeerExchange(const PeerExchange&) = delete;
  PeerExchange& operator=(const PeerExchange&) = delete;
  // Collective, unless an exception is on its way: no rank's memory goes away while others may read it. Gives up when a rank has failed.
  ~PeerExchange();

  // Collective over those that exchange, in the order of their slots, when the memory is allocated. `placements`: by layer. Throws
  // InputError when they do not reach each other's memory.
  void connect(std::unique_ptr<comm::Communicator> ranks,
               const std::vector<ExpertPlacement>& placements,
               Backend& backend);

  // Launches, the same ones in every step whatever its tokens; every rank makes them, with no tokens too. The order of a layer: dispatch,
  // what its experts do, combine.
  struct Tokens {
    const fp8_e4m3* codes = nullptr;    // [count, hidden], or null: values
    const float* scales = nullptr;      // [ceil(hidden / 128), scale_stride]
    const half16* values = nullptr;     // [count, hidden], or null: codes
    const int32_t* topk_ids = nullptr;  // [count, k]; outside the experts: padding
    int64_t count = 0;
    int64_t scale_stride = 0;
  };
  // Leaves received*, token_of_row, num_valid and row_of_slot of the workspace.
  void dispatch(size_t layer, const Tokens& tokens);

  struct Sums {
    const int32_t* topk_ids = nullptr;    // [count, k]: those that were dispatched
    const float* topk_weights = nullptr;  // [count, k]
    const half16* shared = nullptr;       // [count, hidden], or null
    half16* out = nullptr;                // [count, hidden]
    int64_t count = 0;
  };
  // Reads expert_rows of the workspaces.
  void combine(size_t layer, const Sums& sums);

 private:
  struct Places {  // of a layer; empty where it has no experts
    int32_t* first_copy = nullptr;
    int32_t* place_of_copy = nullptr;
    int slots_per_rank = 0;
  };
  [[nodiscard]] ExpertPlaces places(size_t layer) const;
  [[nodiscard]] TokenInbox own_inbox() const;

  const Workspace& ws_;
  Backend* backend_ = nullptr;
  std::unique_ptr<comm::Communicator> ranks_;
  int num_exceptions_;  // on their way when this was made
  ExpertGroup group_;
  int num_experts_ = 0;      // of the model
  int num_own_experts_ = 0;  // slots of this rank; others may have one more
  bool is_fp8_ = false;
  float* sent_scales_ = nullptr;      // [num_ranks * max_tokens, ceil(hidden / 128)]: as they travel
  uint32_t* flags_ = nullptr;         // [2 * num_ranks + 1]: arrived, finished, the epoch
  int32_t* arrivals_ = nullptr;       // [1]
  TokenInbox* inboxes_ = nullptr;     // [num_ranks]
  ExpertResults* results_ = nullptr;  // [num_ranks]
  std::vector<Places> places_;        // by layer
};

}  // namespace gpu
