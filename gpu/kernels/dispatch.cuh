// Tokens go to the ranks whose experts they chose: once to each rank, pushed into its memory. Then each rank finds out, on the device,
// which rows are for which of its experts, in the form that the masked grouped linears gather from. Padded and masked throughout: what
// is launched does not depend on the routing, so the launches of a step can be a graph.
// Covers no op: it decides where a token's x_fp8 and x_scale lie.
#pragma once

#include "gpu/kernels/align.cuh"
#include "gpu/kernels/expert_window.cuh"

namespace gpu {

// Every rank dispatches in every step, with no tokens too.
struct DispatchArguments {
  ExpertGroup group;
  ExpertPlaces places;
  const fp8_e4m3* codes = nullptr;    // [num_tokens, hidden], or null: values
  const float* scales = nullptr;      // [ceil(hidden / 128), scale_stride]: token-minor, as rms_norm leaves them
  const bf16* values = nullptr;       // [num_tokens, hidden], or null: codes
  const int32_t* topk_ids = nullptr;  // [num_tokens, k]; an id outside [0, num_experts) goes nowhere
  int32_t* arrivals = nullptr;        // [1] of this rank alone, zero before the first launch and after each
  int64_t num_tokens = 0;             // at most max_tokens; rows of padding have ids of -1
  int64_t scale_stride = 0;           // at least num_tokens
};

struct ReceiveArguments {
  ExpertGroup group;
  ExpertWindow own;         // this rank's: an element of group.windows
  float* scales = nullptr;  // [ceil(hidden / 128), num_ranks * max_tokens]: token-minor, as the linears read them
  int32_t* token_of_row = nullptr;  // [slots_per_rank, num_ranks * max_tokens]: row of own.codes or own.values
  int32_t* num_valid = nullptr;     // [slots_per_rank]
  int slots_per_rank = 0;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kDispatchThreads = 128;
inline constexpr int kReceiveTokens = 16;  // of one rank, in a block

struct DispatchShared {
  int32_t places[kExchangeMaxChoices];
  int32_t is_last;
};

// The block's token to a peer that has one of its experts. row: of the peer's copies.
GPU_DEVICE void push_token(const DispatchArguments& arguments, const ExpertWindow& peer, int64_t row, int64_t token) {
  constexpr int kCodes = 16;
  constexpr int kValues = 8;
  const int hidden = arguments.group.hidden;
  const int thread = static_cast<int>(thread_idx().x);
  if (arguments.codes == nullptr) {
    for (int column = thread * kValues; column < hidden; column += kDispatchThreads * kValues) {
      store_vector<kValues>(peer.values + row * hidden + column,
                            load_vector<kValues>(arguments.values + token * hidden + column));
    }
    return;
  }
  for (int column = thread * kCodes; column < hidden; column += kDispatchThreads * kCodes) {
    store_vector<kCodes>(peer.codes + row * hidden + column,
                         load_vector<kCodes>(arguments.codes + token * hidden + column));
  }
  const int num_blocks = (hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  for (int block = thread; block < num_blocks; block += kDispatchThreads) {
    peer.scales[row * num_blocks + block] = arguments.scales[block * arguments.scale_stride + token];
  }
}

// Grid: one block for each token that could be there. Shared memory: DispatchShared. Rows 16-byte aligned. Waits for nobody.
GPU_KERNEL dispatch_kernel(DispatchArguments arguments) {
  DispatchShared& shared = *shared_memory_as<DispatchShared>();
  const ExpertGroup& group = arguments.group;
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  if (thread < group.k) {
    const int32_t expert = token < arguments.num_tokens ? arguments.topk_ids[token * group.k + thread] : -1;
    shared.places[thread] = place_of_expert(arguments.places, expert, token, group.rank);
  }
  sync_threads();
  const int64_t row = group.rank * group.max_tokens + token;
  const int slots_per_rank = arguments.places.slots_per_rank;
  for (int rank = 0; rank < group.num_ranks; ++rank) {
    const ExpertWindow& peer = group.windows[rank];
    const auto slot_there = [&](int choice) {
      const int32_t slot = shared.places[choice] - rank * slots_per_rank;
      return shared.places[choice] >= 0 && slot >= 0 && slot < slots_per_rank ? slot : -1;
    };
    if (thread < group.k) {
      peer.slots[row * group.k + thread] = slot_there(thread);
    }
    bool is_wanted = false;
    for (int choice = 0; choice < group.k; ++choice) {
      is_wanted = is_wanted || slot_there(choice) >= 0;
    }
    if (is_wanted) {
      push_token(arguments, peer, row, token);
    }
  }
  sync_threads();
  if (thread == 0) {
    thread_fence();  // the block's rows before its arrival
    shared.is_last = atomic_add(arguments.arrivals, 1) == static_cast<int32_t>(grid_dim().x) - 1 ? 1 : 0;
    thread_fence();  // the other blocks' rows after theirs
  }
  sync_threads();
  if (shared.is_last == 0) {
    return;
  }
  const uint32_t epoch = *group.epoch + 1;
  for (int rank = thread; rank < group.num_ranks; rank += kDispatchThreads) {
    store_release_system(&group.windows[rank].dispatched[group.rank], epoch);
  }
  sync_threads();
  if (thread == 0) {
    *group.epoch = epoch;
    atomic_add(arguments.arrivals, -static_cast<int32_t>(grid_dim().x));  // ready for the next launch
  }
}

// Grid: (ceil(max_tokens / 16), num_ranks): tokens of one rank. No shared memory. Waits for that rank, then turns the scales of the
// rows that are for this rank around. Without FP8 it only waits.
GPU_KERNEL receive_kernel(ReceiveArguments arguments) {
  const ExpertGroup& group = arguments.group;
  const int thread = static_cast<int>(thread_idx().x);
  const auto from = static_cast<int64_t>(block_idx().y);
  if (thread == 0) {
    wait_for_flag(&arguments.own.dispatched[from], *group.epoch);
  }
  sync_threads();
  if (arguments.scales == nullptr) {
    return;
  }
  const int num_blocks = (group.hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  const int64_t first = static_cast<int64_t>(block_idx().x) * kReceiveTokens;
  for (int64_t token = first; token < first + kReceiveTokens && token < group.max_tokens; ++token) {
    const int64_t row = from * group.max_tokens + token;
    bool is_here = false;
    for (int choice = 0; choice < group.k; ++choice) {
      is_here = is_here || arguments.own.slots[row * group.k + choice] >= 0;
    }
    for (int block = thread; is_here && block < num_blocks; block += kDispatchThreads) {
      arguments.scales[block * group.num_ranks * group.max_tokens + row] =
          arguments.own.scales[row * num_blocks + block];
    }
  }
}

inline void dispatch(Stream stream, const DispatchArguments& arguments) {
  check_group(arguments.group);
  require(arguments.num_tokens >= 0 && arguments.num_tokens <= arguments.group.max_tokens,
          "dispatch: more tokens than max_tokens, the most that a rank may bring");
  require((arguments.codes == nullptr) != (arguments.values == nullptr) || arguments.num_tokens == 0,
          "dispatch: either codes or values");
  require(arguments.codes == nullptr || (arguments.scales != nullptr && arguments.scale_stride >= arguments.num_tokens),
          "dispatch: codes need scales with a stride of at least num_tokens");
  launch(stream,
         {.name = "dispatch",
          .grid = {static_cast<unsigned>(arguments.group.max_tokens)},
          .block = {kDispatchThreads},
          .shared_bytes = sizeof(DispatchShared)},
         dispatch_kernel,
         arguments);
}

// Behind dispatch, on the same stream.
inline void receive(Stream stream, const ReceiveArguments& arguments) {
  const ExpertGroup& group = arguments.group;
  check_group(group);
  require((arguments.scales == nullptr) == (arguments.own.codes == nullptr), "receive: codes and scales come together");
  launch(stream,
         {.name = "receive",
          .grid = {static_cast<unsigned>((group.max_tokens + kReceiveTokens - 1) / kReceiveTokens),
                   static_cast<unsigned>(group.num_ranks)},
          .block = {kDispatchThreads}},
         receive_kernel,
         arguments);
  align(stream,
        {.topk_ids = arguments.own.slots,
         .token_of_row = arguments.token_of_row,
         .num_valid = arguments.num_valid,
         .row_of_slot = arguments.own.row_of_choice,
         .num_tokens = group.num_ranks * group.max_tokens,
         .num_experts = arguments.slots_per_rank,
         .k = group.k});
}

}  // namespace gpu::DSV3_BACKEND
