// From the experts of each token to the rows of each expert, for the masked grouped GEMM, with nothing copied: the GEMM gathers.
// Covers no op: it decides where an expert's tokens lie, in ascending token as the reference takes them.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct AlignArguments {
  const int32_t* topk_ids =
      nullptr;                      // [num_tokens, k]; an id outside [0, num_experts) is a padding slot and gets no row
  int32_t* token_of_row = nullptr;  // [num_experts, num_tokens]: the first num_valid of each are written; may be null
  int32_t* num_valid = nullptr;     // [num_experts]
  int32_t* row_of_slot = nullptr;   // [num_tokens, k]: expert * num_tokens + its row there
  int64_t num_tokens = 0;
  int num_experts = 0;
  int k = 0;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

// Grid: one block of one warp for each expert. No shared memory. Deterministic: slots are scanned in ascending order.
GPU_KERNEL align_kernel(AlignArguments arguments) {
  const auto expert = static_cast<int32_t>(block_idx().x);
  const int lane = static_cast<int>(thread_idx().x);
  const int64_t num_slots = arguments.num_tokens * arguments.k;
  int32_t count = 0;
  for (int64_t first = 0; first < num_slots; first += kLanes) {
    const int64_t slot = first + lane;
    const bool is_mine = slot < num_slots && arguments.topk_ids[slot] == expert;
    const uint32_t votes = ballot(kFullWarp, is_mine);
    if (is_mine) {
      const int32_t row = count + count_ones(votes & ((1U << lane) - 1));
      if (arguments.token_of_row != nullptr) {
        arguments.token_of_row[expert * arguments.num_tokens + row] = static_cast<int32_t>(slot / arguments.k);
      }
      arguments.row_of_slot[slot] = static_cast<int32_t>(expert * arguments.num_tokens + row);
    }
    count += count_ones(votes);
  }
  if (lane == 0) {
    arguments.num_valid[expert] = count;
  }
}

inline void align(Stream stream, const AlignArguments& arguments) {
  require(arguments.k >= 1, "align: at least one expert a token");
  require(arguments.num_experts * arguments.num_tokens <= INT32_MAX, "align: too many rows for 32-bit row numbers");
  if (arguments.num_tokens > 0 && arguments.num_experts > 0) {
    launch(stream,
           {.name = "align", .grid = {static_cast<unsigned>(arguments.num_experts)}, .block = {kLanes}},
           align_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
