// y = x W^T for many tokens on Hopper: E4M3 codes, 1x128 scales of x and 128x128 scales of W, BF16 out. One warp copies tiles by TMA, a
// warpgroup multiplies them by wgmma; every 128 of K the product leaves the tensor core and meets its scales in FP32. With groups it is the
// contiguous grouped GEMM of the routed experts: rows sorted by expert, each expert's padded to whole tiles.
// Covers the FP8 linears of prefill.
#pragma once

#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct Fp8LinearSm90Arguments {
  const fp8_e4m3* x = nullptr;     // [num_tokens, in_dim]
  const float* x_scale = nullptr;  // [ceil(in_dim / 128), x_scale_stride]: token-minor
  const int32_t* group_of_tile =
      nullptr;  // [ceil(num_tokens / 64)]: whose W these rows take; negative: rows of padding, y is not
                // written; null: one group
  const fp8_e4m3* weight = nullptr;     // [num_groups, out_dim, in_dim]
  const float* weight_scale = nullptr;  // [num_groups, ceil(out_dim / 128), ceil(in_dim / 128)]
  bf16* y = nullptr;                    // [num_tokens, out_dim]
  int64_t num_tokens = 0;
  int64_t x_scale_stride = 0;  // at least num_tokens
  int64_t out_dim = 0;         // a multiple of 8
  int64_t in_dim = 0;          // a multiple of 16
  int num_groups = 1;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kSm90Tokens = 64;  // rows of x in a block: what wgmma has
inline constexpr int kSm90Rows = 128;   // of W in a block: one scale
inline constexpr int kSm90Stages = 4;
inline constexpr int kSm90Multipliers = 128;                    // threads 0 to 127: the warpgroup
inline constexpr int kSm90Threads = kSm90Multipliers + kLanes;  // and the warp that copies

struct Fp8LinearSm90Shared {
  unsigned char x[kSm90Stages][kSm90Tokens][kScaleBlockLen];
  unsigned char weight[kSm90Stages][kSm90Rows][kScaleBlockLen];
  Barrier full[kSm90Stages];   // a stage's tiles have come
  Barrier empty[kSm90Stages];  // the warps are done with them
};
inline constexpr int kSm90StageBytes = (kSm90Tokens + kSm90Rows) * kScaleBlockLen;

struct Fp8LinearSm90Launch {
  TensorMap x;
  TensorMap weight;
  Fp8LinearSm90Arguments arguments;
};

// Grid: (ceil(out_dim / 128), ceil(num_tokens / 64)). Shared memory: Fp8LinearSm90Shared and kTileSlackBytes.
// Rounding: the tensor core over 128 products from zero, then total = fma(s_x * s_w, product, total), blocks ascending; BF16 once. With
// kHopper accumulation: the reference's recipe `hopper`.
GPU_KERNEL fp8_linear_sm90_kernel(const GPU_GRID_CONSTANT Fp8LinearSm90Launch launched) {
  const Fp8LinearSm90Arguments& arguments = launched.arguments;
  auto& shared = *shared_tiles_as<Fp8LinearSm90Shared>();
  const int thread = static_cast<int>(thread_idx().x);
  const int lane = thread % kLanes;
  const int64_t first_row = static_cast<int64_t>(block_idx().x) * kSm90Rows;
  const int64_t first_token = static_cast<int64_t>(block_idx().y) * kSm90Tokens;
  const int64_t group = arguments.group_of_tile != nullptr ? arguments.group_of_tile[block_idx().y] : 0;
  if (group < 0) {
    return;
  }
  const auto num_blocks = static_cast<int>((arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen);
  if (thread == 0) {
    for (int stage = 0; stage < kSm90Stages; ++stage) {
      init_barrier(shared.full[stage], 1);
      init_barrier(shared.empty[stage], kSm90Multipliers / kLanes);
    }
    fence_barrier_init();
  }
  sync_threads();

  if (thread >= kSm90Multipliers) {
    if (lane == 0) {
      for (int block = 0; block < num_blocks; ++block) {
        const int stage = block % kSm90Stages;
        const int parity = block / kSm90Stages % 2;
        wait(shared.empty[stage], parity ^ 1);  // passes for the first round
        arrive_and_expect(shared.full[stage], kSm90StageBytes);
        const int64_t column = static_cast<int64_t>(block) * kScaleBlockLen;
        load_tile(shared.x[stage], launched.x, column, first_token, shared.full[stage]);
        load_tile(
            shared.weight[stage], launched.weight, column, group * arguments.out_dim + first_row, shared.full[stage]);
      }
    }
    return;
  }

  const float* const weight_scale =
      arguments.weight_scale +
      (group * ((arguments.out_dim + kScaleBlockLen - 1) / kScaleBlockLen) + first_row / kScaleBlockLen) * num_blocks;
  // Element i of a thread's products: token first_token + row_of(i), row of W column_of(i).
  const auto row_of = [&](int i) { return thread / kLanes * 16 + lane / 4 + 8 * (i % 4 / 2); };
  const auto column_of = [&](int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; };
  constexpr int kShare = kSm90Rows / 2;
  float total[kShare] = {};
  float product[kShare] = {};
  for (int block = 0; block < num_blocks; ++block) {
    const int stage = block % kSm90Stages;
    float scales[2] = {0, 0};
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t token = first_token + row_of(2 * half);
      if (token < arguments.num_tokens) {
        scales[half] = multiply(arguments.x_scale[block * arguments.x_scale_stride + token], weight_scale[block]);
      }
    }
    wait(shared.full[stage], block / kSm90Stages % 2);
    fence_products();
    multiply_warpgroup_e4m3<kSm90Rows>(product, shared.x[stage], shared.weight[stage], false);
    commit_products();
    wait_products<0>(product);
    if (lane == 0) {
      arrive(shared.empty[stage]);
    }
    GPU_UNROLL
    for (int i = 0; i < kShare; ++i) {
      total[i] = fused_multiply_add(scales[i % 4 / 2], product[i], total[i]);
    }
  }
  GPU_UNROLL
  for (int i = 0; i < kShare; i += 2) {
    const int64_t token = first_token + row_of(i);
    const int64_t row = first_row + column_of(i);
    if (token < arguments.num_tokens && row < arguments.out_dim) {
      store_vector<2>(arguments.y + token * arguments.out_dim + row,
                      Vector<bf16, 2>{{to_bf16(total[i]), to_bf16(total[i + 1])}});
    }
  }
}

inline void fp8_linear_sm90(Stream stream, const Fp8LinearSm90Arguments& arguments) {
  require(arguments.in_dim > 0 && arguments.in_dim % 16 == 0, "fp8_linear_sm90: in_dim has to be a multiple of 16");
  require(arguments.out_dim % 8 == 0, "fp8_linear_sm90: out_dim has to be a multiple of 8");
  require(arguments.x_scale_stride >= arguments.num_tokens, "fp8_linear_sm90: x_scale_stride is at least num_tokens");
  require(arguments.group_of_tile != nullptr || arguments.num_groups == 1,
          "fp8_linear_sm90: groups need group_of_tile");
  if (arguments.num_tokens == 0 || arguments.out_dim == 0) {
    return;
  }
  const Fp8LinearSm90Launch launched{
      make_tensor_map(arguments.x, arguments.num_tokens, arguments.in_dim, arguments.in_dim, kSm90Tokens),
      make_tensor_map(
          arguments.weight, arguments.num_groups * arguments.out_dim, arguments.in_dim, arguments.in_dim, kSm90Rows),
      arguments};
  launch(stream,
         {.name = "fp8_linear_sm90",
          .grid = {static_cast<unsigned>((arguments.out_dim + kSm90Rows - 1) / kSm90Rows),
                   static_cast<unsigned>((arguments.num_tokens + kSm90Tokens - 1) / kSm90Tokens)},
          .block = {kSm90Threads},
          .shared_bytes = sizeof(Fp8LinearSm90Shared) + kTileSlackBytes},
         fp8_linear_sm90_kernel,
         launched);
}

}  // namespace gpu::DSV3_BACKEND
