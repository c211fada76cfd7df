// Tokens go to the ranks whose experts they chose: once to each rank, pushed into its memory. Then each rank finds out, on the device,
// which rows are for which of its experts, in the form that the masked grouped linears gather from. Padded and masked throughout: what
// is launched does not depend on the routing, so the launches of a step can be a graph.
// Covers no op: it decides where a token's x_fp8 and x_scale lie.
#pragma once

#include "gpu/kernels/align.cuh"
#include "gpu/kernels/expert_group.cuh"

namespace gpu {

// Every rank dispatches in every step, with no tokens too.
struct DispatchArguments {
  ExpertGroup group;
  ExpertPlaces places;
  const fp8_e4m3* codes = nullptr;    // [num_tokens, hidden], or null: values
  const float* scales = nullptr;      // [ceil(hidden / 128), scale_stride]: token-minor, as rms_norm leaves them
  const half16* values = nullptr;     // [num_tokens, hidden], or null: codes
  const int32_t* topk_ids = nullptr;  // [num_tokens, k]; an id outside [0, num_experts) goes nowhere
  int32_t* arrivals = nullptr;        // [1] of this rank alone, zero before the first launch and after each
  int64_t num_tokens = 0;             // at most max_tokens; rows of padding have ids of -1
  int64_t scale_stride = 0;           // at least num_tokens
};

// Nodes of equal size, ranks numbered node by node. A token then goes once to each node that has one of its experts, to the rank with
// this rank's place there, which passes it on inside its node.
struct NodeArguments {
  const TokenInbox* inboxes = nullptr;  // [num_nodes]: of the ranks with this rank's place; their senders are nodes
  TokenInbox own;                       // this rank's of them, apart from the one in the group
  int32_t* arrivals = nullptr;          // [1] of this rank alone, zero before the first launch and after each
  int ranks_per_node = 1;
};

struct ReceiveArguments {
  ExpertGroup group;
  TokenInbox own;                    // this rank's: an element of group.inboxes
  int32_t* row_of_choice = nullptr;  // this rank's: of an element of group.results
  float* scales = nullptr;           // [ceil(hidden / 128), num_ranks * max_tokens]: token-minor, as linears read them
  int32_t* token_of_row = nullptr;   // [slots_per_rank, num_ranks * max_tokens]: row of own.codes or own.values
  int32_t* num_valid = nullptr;      // [slots_per_rank]
  int slots_per_rank = 0;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kDispatchThreads = 128;
inline constexpr int kReceiveTokens = 16;  // of one rank, in a block

struct PushShared {
  int32_t places[kExchangeMaxChoices];  // of the token's choices: inbox * slots_per_inbox + slot there, or -1
  int32_t is_last;
};

// Where tokens come from.
struct TokenRows {
  const fp8_e4m3* codes = nullptr;  // or null: values
  const float* scales = nullptr;
  const half16* values = nullptr;
  int64_t scale_row_stride = 0;
  int64_t scale_block_stride = 0;
};

// Where they go to.
struct PushTargets {
  const TokenInbox* inboxes = nullptr;  // [num_inboxes]
  int num_inboxes = 0;
  int slots_per_inbox = 0;
  int sender = 0;  // whose rows there are written
};

// One row by the whole block.
GPU_DEVICE void push_row(const TokenRows& from, int64_t row, const TokenInbox& to, int64_t row_there, int hidden) {
  constexpr int kCodes = 16;
  constexpr int kValues = 8;
  const int thread = static_cast<int>(thread_idx().x);
  if (from.codes == nullptr) {
    for (int column = thread * kValues; column < hidden; column += kDispatchThreads * kValues) {
      store_vector<kValues>(to.values + row_there * hidden + column,
                            load_vector<kValues>(from.values + row * hidden + column));
    }
    return;
  }
  for (int column = thread * kCodes; column < hidden; column += kDispatchThreads * kCodes) {
    store_vector<kCodes>(to.codes + row_there * hidden + column,
                         load_vector<kCodes>(from.codes + row * hidden + column));
  }
  const int num_blocks = (hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  for (int block = thread; block < num_blocks; block += kDispatchThreads) {
    to.scales[row_there * num_blocks + block] =
        from.scales[row * from.scale_row_stride + block * from.scale_block_stride];
  }
}

// The block's token, whose places are in shared memory: its row to the inboxes that need it, its slots to all.
GPU_DEVICE void push_token(const PushShared& shared,
                           const ExpertGroup& group,
                           const PushTargets& to,
                           int64_t token,
                           const TokenRows& from,
                           int64_t row) {
  const int64_t row_there = to.sender * group.max_tokens + token;
  const int thread = static_cast<int>(thread_idx().x);
  for (int i = 0; i < to.num_inboxes; ++i) {
    const auto slot_there = [&](int choice) {
      const int32_t slot = shared.places[choice] - i * to.slots_per_inbox;
      return shared.places[choice] >= 0 && slot >= 0 && slot < to.slots_per_inbox ? slot : -1;
    };
    if (thread < group.k) {
      to.inboxes[i].slots[row_there * group.k + thread] = slot_there(thread);
    }
    bool is_wanted = false;
    for (int choice = 0; choice < group.k; ++choice) {
      is_wanted = is_wanted || slot_there(choice) >= 0;
    }
    if (is_wanted) {
      push_row(from, row, to.inboxes[i], row_there, group.hidden);
    }
  }
}

// True in the block of the grid that comes here last; its threads may then tell others what all blocks have written.
GPU_DEVICE bool is_last_block(PushShared& shared, int32_t* arrivals, int num_blocks) {
  sync_threads();
  if (thread_idx().x == 0) {
    thread_fence();  // the block's rows before its arrival
    shared.is_last = atomic_add(arrivals, 1) == num_blocks - 1 ? 1 : 0;
    thread_fence();  // the other blocks' rows after theirs
  }
  sync_threads();
  if (shared.is_last != 0 && thread_idx().x == 0) {
    atomic_add(arrivals, -num_blocks);  // ready for the next launch
  }
  return shared.is_last != 0;
}

struct DispatchLaunch {
  DispatchArguments tokens;
  PushTargets to;
};

// Grid: one block for each token that could be there. Shared memory: PushShared. Rows 16-byte aligned. Waits for nobody.
GPU_KERNEL dispatch_kernel(DispatchLaunch arguments) {
  PushShared& shared = *shared_memory_as<PushShared>();
  const auto& [tokens, to] = arguments;
  const ExpertGroup& group = tokens.group;
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  if (thread < group.k) {
    const int32_t expert = token < tokens.num_tokens ? tokens.topk_ids[token * group.k + thread] : -1;
    shared.places[thread] = place_of_expert(tokens.places, expert, token, group.rank);
  }
  sync_threads();
  push_token(shared, group, to, token, {tokens.codes, tokens.scales, tokens.values, 1, tokens.scale_stride}, token);
  if (!is_last_block(shared, tokens.arrivals, static_cast<int>(grid_dim().x))) {
    return;
  }
  const uint32_t epoch = *group.epoch + 1;
  for (int i = thread; i < to.num_inboxes; i += kDispatchThreads) {
    store_release_system(&to.inboxes[i].arrived[to.sender], epoch);
  }
  sync_threads();
  if (thread == 0) {
    *group.epoch = epoch;
  }
}

struct ForwardArguments {
  ExpertGroup group;
  NodeArguments nodes;
  int slots_per_rank = 0;
};

// Grid: (max_tokens, num_nodes): the tokens that came from one node. Shared memory: PushShared. Waits for that node's rank with this
// one's place; passes its tokens on inside this node, under the number of the rank that they are from.
GPU_KERNEL forward_kernel(ForwardArguments arguments) {
  PushShared& shared = *shared_memory_as<PushShared>();
  const ExpertGroup& group = arguments.group;
  const TokenInbox& own = arguments.nodes.own;
  const int ranks_per_node = arguments.nodes.ranks_per_node;
  const int place = group.rank % ranks_per_node;
  const TokenInbox* const inboxes = group.inboxes + (group.rank - place);
  const auto token = static_cast<int64_t>(block_idx().x);
  const int node = static_cast<int>(block_idx().y);
  const int thread = static_cast<int>(thread_idx().x);
  const uint32_t epoch = *group.epoch;
  if (thread == 0) {
    wait_for_flag(&own.arrived[node], epoch);
  }
  sync_threads();
  const int64_t row = node * group.max_tokens + token;
  if (thread < group.k) {
    shared.places[thread] = own.slots[row * group.k + thread];
  }
  sync_threads();
  const int num_blocks = (group.hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  push_token(shared,
             group,
             {inboxes, ranks_per_node, arguments.slots_per_rank, node * ranks_per_node + place},
             token,
             {own.codes, own.scales, own.values, num_blocks, 1},
             row);
  if (!is_last_block(shared, arguments.nodes.arrivals, static_cast<int>(grid_dim().x * grid_dim().y))) {
    return;
  }
  for (int i = thread; i < group.num_ranks; i += kDispatchThreads) {
    const int from = i / ranks_per_node * ranks_per_node + place;
    store_release_system(&inboxes[i % ranks_per_node].arrived[from], epoch);
  }
}

// Grid: (ceil(max_tokens / 16), num_ranks): tokens of one rank. No shared memory. Waits for that rank, then turns the scales of the
// rows that are for this rank around. Without FP8 it only waits.
GPU_KERNEL receive_kernel(ReceiveArguments arguments) {
  const ExpertGroup& group = arguments.group;
  const int thread = static_cast<int>(thread_idx().x);
  const auto from = static_cast<int64_t>(block_idx().y);
  if (thread == 0) {
    wait_for_flag(&arguments.own.arrived[from], *group.epoch);
  }
  sync_threads();
  if (arguments.scales == nullptr) {
    return;
  }
  const int num_blocks = (group.hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  const int64_t num_rows = group.num_ranks * group.max_tokens;
  const int64_t first = static_cast<int64_t>(block_idx().x) * kReceiveTokens;
  for (int64_t token = first; token < first + kReceiveTokens && token < group.max_tokens; ++token) {
    const int64_t row = from * group.max_tokens + token;
    bool is_here = false;
    for (int choice = 0; choice < group.k; ++choice) {
      is_here = is_here || arguments.own.slots[row * group.k + choice] >= 0;
    }
    for (int block = thread; is_here && block < num_blocks; block += kDispatchThreads) {
      arguments.scales[block * num_rows + row] = arguments.own.scales[row * num_blocks + block];
    }
  }
}

inline void launch_dispatch(Stream stream, const DispatchArguments& arguments, const PushTargets& to) {
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
          .shared_bytes = sizeof(PushShared)},
         dispatch_kernel,
         DispatchLaunch{arguments, to});
}

// To every rank itself.
inline void dispatch(Stream stream, const DispatchArguments& arguments) {
  const ExpertGroup& group = arguments.group;
  launch_dispatch(stream, arguments, {group.inboxes, group.num_ranks, arguments.places.slots_per_rank, group.rank});
}

// By way of nodes.
inline void dispatch_by_nodes(Stream stream, const DispatchArguments& arguments, const NodeArguments& nodes) {
  const ExpertGroup& group = arguments.group;
  const int slots_per_rank = arguments.places.slots_per_rank;
  const int size = nodes.ranks_per_node;
  require(size >= 1 && group.num_ranks % size == 0, "dispatch: the ranks are no whole number of nodes");
  const int num_nodes = group.num_ranks / size;
  launch_dispatch(stream, arguments, {nodes.inboxes, num_nodes, size * slots_per_rank, group.rank / size});
  launch(stream,
         {.name = "dispatch.forward",
          .grid = {static_cast<unsigned>(group.max_tokens), static_cast<unsigned>(num_nodes)},
          .block = {kDispatchThreads},
          .shared_bytes = sizeof(PushShared)},
         forward_kernel,
         ForwardArguments{group, nodes, slots_per_rank});
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
         .row_of_slot = arguments.row_of_choice,
         .num_tokens = group.num_ranks * group.max_tokens,
         .num_experts = arguments.slots_per_rank,
         .k = group.k});
}

}  // namespace gpu::DSV3_BACKEND
