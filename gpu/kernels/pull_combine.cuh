// The routed experts' outputs, read where they were computed, weighted and summed, plus the shared expert: combine for experts on several
// ranks. Covers the ops moe.routed and ffn of a MoE layer.
#pragma once

#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/expert_group.cuh"

namespace gpu {

// Every rank calls it in every step, with no tokens too, behind the experts' last linear and with the placement of its dispatch.
struct PullCombineArguments {
  ExpertGroup group;
  ExpertPlaces places;
  const int32_t* topk_ids = nullptr;    // [num_tokens, k]: those that were dispatched
  const float* topk_weights = nullptr;  // [num_tokens, k]
  const half16* shared = nullptr;       // [num_tokens, hidden], or null
  half16* out = nullptr;                // [num_tokens, hidden]
  int64_t num_tokens = 0;               // at most max_tokens
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

struct PullCombineShared {
  int32_t ranks[kExchangeMaxChoices];  // by ascending expert id
  int32_t rows[kExchangeMaxChoices];
  float weights[kExchangeMaxChoices];
};

// Grid: one block. No shared memory. Tells all ranks that this rank's experts are done, which the stream's order says to it.
GPU_KERNEL raise_finished_kernel(ExpertGroup group) {
  const uint32_t epoch = *group.epoch;
  for (int rank = static_cast<int>(thread_idx().x); rank < group.num_ranks; rank += kCombineThreads) {
    store_release_system(&group.results[rank].finished[group.rank], epoch);
  }
}

// Grid: one block a token, and one without tokens: somebody has to hear that all ranks are done with what this one wrote to them.
// Shared memory: PullCombineShared. Rows 16-byte aligned. Order: ascending expert id, as combine; a padding choice is left out.
GPU_KERNEL pull_combine_kernel(PullCombineArguments arguments) {
  PullCombineShared& shared = *shared_memory_as<PullCombineShared>();
  const ExpertGroup& group = arguments.group;
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  const uint32_t* const finished = group.results[group.rank].finished;
  for (int rank = thread; rank < group.num_ranks; rank += kCombineThreads) {
    wait_for_flag(&finished[rank], *group.epoch);
  }
  sync_threads();
  if (token >= arguments.num_tokens) {
    return;
  }
  const int32_t* const ids = arguments.topk_ids + token * group.k;
  const auto is_expert = [&](int choice) { return ids[choice] >= 0 && ids[choice] < arguments.places.num_experts; };
  int count = 0;
  for (int choice = 0; choice < group.k; ++choice) {
    count += is_expert(choice) ? 1 : 0;
  }
  if (thread < group.k && is_expert(thread)) {
    int place = 0;  // ids of one token differ
    for (int choice = 0; choice < group.k; ++choice) {
      place += is_expert(choice) && ids[choice] < ids[thread] ? 1 : 0;
    }
    const int32_t rank =
        place_of_expert(arguments.places, ids[thread], token, group.rank) / arguments.places.slots_per_rank;
    const int64_t row_there = group.rank * group.max_tokens + token;
    shared.ranks[place] = rank;
    shared.rows[place] = group.results[rank].row_of_choice[row_there * group.k + thread];
    shared.weights[place] = arguments.topk_weights[token * group.k + thread];
  }
  sync_threads();
  const int64_t first = token * group.hidden;
  combine_rows(
      count,
      [&](int i) {
        return group.results[shared.ranks[i]].expert_rows + static_cast<int64_t>(shared.rows[i]) * group.hidden;
      },
      shared.weights,
      arguments.shared != nullptr ? arguments.shared + first : nullptr,
      arguments.out + first,
      group.hidden);
}

inline void pull_combine(Stream stream, const PullCombineArguments& arguments) {
  check_group(arguments.group);
  require(arguments.num_tokens >= 0 && arguments.num_tokens <= arguments.group.max_tokens,
          "pull_combine: more tokens than max_tokens, the most that a rank may bring");
  launch(stream,
         {.name = "pull_combine.raise", .grid = {1}, .block = {kCombineThreads}},
         raise_finished_kernel,
         arguments.group);
  launch(stream,
         {.name = "pull_combine",
          .grid = {static_cast<unsigned>(arguments.num_tokens > 0 ? arguments.num_tokens : 1)},
          .block = {kCombineThreads},
          .shared_bytes = sizeof(PullCombineShared)},
         pull_combine_kernel,
         arguments);
}

}  // namespace gpu::DSV3_BACKEND
