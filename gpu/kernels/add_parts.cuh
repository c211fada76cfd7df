// What ranks computed of a linear's sums, added: each has a share of K. Covers, together with the linears before it, o_proj and the down
// projections of the dense MLP and the shared expert on several tensor-parallel ranks.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct AddPartsArguments {
  const float* parts = nullptr;  // [num_parts, count]
  half16* sum = nullptr;         // [count]
  int64_t count = 0;
  int num_parts = 0;  // at most 64
  float factor = 1;   // of the sum, before it is rounded
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kAddPartsThreads = 256;
inline constexpr int kMaxAddedParts = 64;

// Grid: one thread an element. No shared memory.
// Rounding: FP32, BF16 once. Order: of a power of two of parts a balanced binary tree,
// the one that linear_tile.cuh makes of the parts of K; of another number the trees of its powers of two, the shorter one added first.
GPU_KERNEL add_parts_kernel(AddPartsArguments arguments) {
  const int64_t i = static_cast<int64_t>(block_idx().x) * kAddPartsThreads + thread_idx().x;
  if (i >= arguments.count) {
    return;
  }
  // Subtrees that wait for what is on their right, as the bits of the number of parts seen say.
  float waiting[7] = {};
  for (int part = 0; part < arguments.num_parts; ++part) {
    float value = arguments.parts[part * arguments.count + i];
    int level = 0;
    for (; (part >> level & 1) != 0; ++level) {
      value = add(waiting[level], value);
    }
    waiting[level] = value;
  }
  // What is left over of a number that is no power of two, the shortest subtree first.
  float sum = 0;
  bool has_sum = false;
  for (int level = 0; arguments.num_parts >> level != 0; ++level) {
    if ((arguments.num_parts >> level & 1) != 0) {
      sum = has_sum ? add(waiting[level], sum) : waiting[level];
      has_sum = true;
    }
  }
  arguments.sum[i] = to_half16(multiply(sum, arguments.factor));
}

inline void add_parts(Stream stream, const AddPartsArguments& arguments) {
  require(arguments.num_parts >= 1 && arguments.num_parts <= kMaxAddedParts, "add_parts: 1 to 64 parts");
  if (arguments.count > 0) {
    launch(stream,
           {.name = "add_parts",
            .grid = {static_cast<unsigned>((arguments.count + kAddPartsThreads - 1) / kAddPartsThreads)},
            .block = {kAddPartsThreads}},
           add_parts_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
