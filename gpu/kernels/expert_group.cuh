// What ranks that share the routed experts of a layer let each other reach, and how they find an expert.
#pragma once

#include "gpu/kernels/expert_places.hpp"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

// Memory of one rank that senders push tokens into. A row belongs to one token of one sender, used or not: sender * max_tokens + token.
struct TokenInbox {
  fp8_e4m3* codes = nullptr;    // [num_senders * max_tokens, hidden], or null: values
  float* scales = nullptr;      // [num_senders * max_tokens, ceil(hidden / 128)]: whole rows, as they travel
  half16* values = nullptr;     // [num_senders * max_tokens, hidden], or null: codes
  int32_t* slots = nullptr;     // [num_senders * max_tokens, k]: the slot here that each choice is for, or -1
  uint32_t* arrived = nullptr;  // [num_senders]: the epoch that each sender's tokens are there for; zero at first
};

// Memory of one rank that the others read.
struct ExpertResults {
  int32_t* row_of_choice = nullptr;  // [num_ranks * max_tokens, k]: a row of expert_rows
  half16* expert_rows = nullptr;     // [slots_per_rank, num_ranks * max_tokens, hidden]
  uint32_t* finished = nullptr;      // [num_ranks]: the epoch that each rank's experts have done; zero at first
};

// The group that a rank belongs to. One set of buffers is enough for step after step, because a step waits for all ranks twice: whoever
// writes again has heard from everybody that the step before is read. Before the first launch all ranks have to know that all flags
// are zero.
struct ExpertGroup {
  const TokenInbox* inboxes = nullptr;     // [num_ranks]
  const ExpertResults* results = nullptr;  // [num_ranks]
  uint32_t* epoch = nullptr;  // [1] of this rank alone: of the step that dispatch began last; zero at first
  int64_t max_tokens = 0;     // that a rank may bring
  int num_ranks = 1;
  int rank = 0;
  int k = 0;       // 1 to 32
  int hidden = 0;  // a multiple of 16
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kExchangeMaxChoices = 32;

// rank * slots_per_rank + slot, or -1 for an id that is no expert: a padding choice.
GPU_DEVICE int32_t place_of_expert(const ExpertPlaces& places, int32_t expert, int64_t token, int rank) {
  if (expert < 0 || expert >= places.num_experts) {
    return -1;
  }
  const int32_t first = places.first_copy[expert];
  return places.place_of_copy[first + chosen_copy(places.first_copy[expert + 1] - first, token, rank)];
}

// Throws ArgumentError.
inline void check_group(const ExpertGroup& group) {
  require(group.num_ranks >= 1 && group.rank >= 0 && group.rank < group.num_ranks,
          "expert exchange: the rank is not of the group");
  require(group.max_tokens >= 1 && group.num_ranks * group.max_tokens <= INT32_MAX,
          "expert exchange: max_tokens has to be at least 1, and the rows of all ranks to fit 32 bits");
  require(group.k >= 1 && group.k <= kExchangeMaxChoices, "expert exchange: 1 to 32 experts a token");
  require(group.hidden > 0 && group.hidden % 16 == 0, "expert exchange: hidden has to be a multiple of 16");
}

}  // namespace gpu::DSV3_BACKEND
