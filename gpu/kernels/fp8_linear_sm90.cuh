// y = x W^T for many tokens on Hopper: E4M3 codes, 1x128 scales of x and 128x128 scales of W, BF16 out. One warp copies tiles by TMA, a
// warpgroup multiplies them by wgmma; every 128 of K the product leaves the tensor core and meets its scales in FP32. With groups it is the
// contiguous grouped GEMM of the routed experts: rows sorted by expert, each expert's padded to whole tiles.
// Covers the FP8 linears of prefill and of the routed experts.
#pragma once

#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct Fp8LinearSm90Arguments {
  const fp8_e4m3* x = nullptr;     // [num_tokens, in_dim]
  const float* x_scale = nullptr;  // of token t at [t / 64 * x_scale_tile_stride + block * x_scale_stride + t % 64]
  const int32_t* group_of_tile =
      nullptr;  // [ceil(num_tokens / 64)]: whose W these rows take; negative: rows of padding, y is not
                // written; null: one group
  const int32_t* rows_of_tile = nullptr;  // [ceil(num_tokens / 64)]: rows of each tile that exist; null: all
  const fp8_e4m3* weight = nullptr;       // [num_groups, out_dim, in_dim]
  const float* weight_scale = nullptr;    // [num_groups, ceil(out_dim / 128), ceil(in_dim / 128)]
  half16* y = nullptr;                    // [num_tokens, out_dim]; rows that do not exist stay untouched
  float* y_f32 = nullptr;                 // the same, unrounded, in place of y
  int64_t num_tokens = 0;
  int64_t x_scale_stride = 0;
  int64_t x_scale_tile_stride = 64;  // 64: x_scale is [ceil(in_dim / 128), x_scale_stride], token-minor
  int64_t out_dim = 0;
  int64_t in_dim = 0;  // a multiple of 16
  int num_groups = 1;
  int num_parts = 1;  // 1, 2, 4 or 8, a divisor of in_dim / 128: summed as a binary tree
  float factor = 1;   // of a sum, before it is rounded into y
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
inline constexpr int kSm90Share = kSm90Tokens * kSm90Rows / kSm90Multipliers;  // results of a thread
struct Fp8LinearSm90Parts {
  float waiting[kMaxTreeLevels][kSm90Share][kSm90Multipliers];  // behind Fp8LinearSm90Shared
};
inline constexpr int kSm90StageBytes = (kSm90Tokens + kSm90Rows) * kScaleBlockLen;

struct Fp8LinearSm90Launch {
  TensorMap x;
  TensorMap weight;
  Fp8LinearSm90Arguments arguments;
};

// Grid: (ceil(out_dim / 128), ceil(num_tokens / 64)). Shared memory: Fp8LinearSm90Shared, with parts Fp8LinearSm90Parts, and
// kTileSlackBytes.
// Rounding: the tensor core over 128 products from zero, then total = fma(s_x * s_w, product, total), blocks ascending (with parts:
// ascending in a part, parts as a balanced binary tree); BF16 once. With kHopper accumulation and one part: the reference's recipe `hopper`.
template <bool kHasParts>
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
  int64_t num_rows = arguments.num_tokens - first_token;
  if (arguments.rows_of_tile != nullptr && arguments.rows_of_tile[block_idx().y] < num_rows) {
    num_rows = arguments.rows_of_tile[block_idx().y];
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
  const float* const x_scale = arguments.x_scale + block_idx().y * arguments.x_scale_tile_stride;
  // Element i of a thread's products: token first_token + row_of(i), row of W column_of(i).
  const auto row_of = [&](int i) { return thread / kLanes * 16 + lane / 4 + 8 * (i % 4 / 2); };
  const auto column_of = [&](int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; };
  float total[kSm90Share] = {};
  float product[kSm90Share] = {};
  for (int block = 0; block < num_blocks; ++block) {
    const int stage = block % kSm90Stages;
    float scales[2] = {0, 0};
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(2 * half);
      if (row < num_rows) {
        scales[half] = multiply(x_scale[block * arguments.x_scale_stride + row], weight_scale[block]);
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
    for (int i = 0; i < kSm90Share; ++i) {
      total[i] = fused_multiply_add(scales[i % 4 / 2], product[i], total[i]);
    }
    if constexpr (kHasParts) {
      const int part_len = num_blocks / arguments.num_parts;
      if ((block + 1) % part_len == 0) {
        auto& parts = *reinterpret_cast<Fp8LinearSm90Parts*>(&shared + 1);
        end_part<kSm90Share>(
            parts.waiting, block / part_len, block + 1 == num_blocks, [&](int i) -> float& { return total[i]; });
      }
    }
  }
  const auto rounded = [&](int i) { return to_half16(multiply(total[i], arguments.factor)); };
  GPU_UNROLL
  for (int i = 0; i < kSm90Share; i += 2) {
    const int64_t row = first_row + column_of(i);
    if (row_of(i) >= num_rows || row >= arguments.out_dim) {
      continue;
    }
    const int64_t at = (first_token + row_of(i)) * arguments.out_dim + row;
    if (arguments.y_f32 == nullptr && arguments.out_dim % 2 == 0) {
      store_vector<2>(arguments.y + at, Vector<half16, 2>{{rounded(i), rounded(i + 1)}});
      continue;
    }
    GPU_UNROLL
    for (int j = 0; j < 2; ++j) {
      if (row + j < arguments.out_dim && arguments.y_f32 != nullptr) {
        arguments.y_f32[at + j] = total[i + j];
      } else if (row + j < arguments.out_dim) {
        arguments.y[at + j] = rounded(i + j);
      }
    }
  }
}

inline void fp8_linear_sm90(Stream stream, const Fp8LinearSm90Arguments& arguments) {
  require(arguments.in_dim > 0 && arguments.in_dim % 16 == 0, "fp8_linear_sm90: in_dim has to be a multiple of 16");
  require(arguments.x_scale_tile_stride != kSm90Tokens || arguments.in_dim <= kScaleBlockLen ||
              arguments.x_scale_stride >= arguments.num_tokens,
          "fp8_linear_sm90: x_scale_stride of token-minor scales is at least num_tokens");
  require(arguments.group_of_tile != nullptr || arguments.num_groups == 1,
          "fp8_linear_sm90: groups need group_of_tile");
  require((arguments.y == nullptr) != (arguments.y_f32 == nullptr), "fp8_linear_sm90: one of y and y_f32");
  require_parts((arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen,
                1,
                arguments.num_parts,
                "fp8_linear_sm90: parts are 2, 4 or 8, and divide the 128-blocks of in_dim");
  if (arguments.num_tokens == 0 || arguments.out_dim == 0) {
    return;
  }
  const Fp8LinearSm90Launch launched{
      make_tensor_map(arguments.x, arguments.num_tokens, arguments.in_dim, arguments.in_dim, kSm90Tokens),
      make_tensor_map(
          arguments.weight, arguments.num_groups * arguments.out_dim, arguments.in_dim, arguments.in_dim, kSm90Rows),
      arguments};
  const bool has_parts = arguments.num_parts > 1;
  launch(stream,
         {.name = "fp8_linear_sm90",
          .grid = {static_cast<unsigned>((arguments.out_dim + kSm90Rows - 1) / kSm90Rows),
                   static_cast<unsigned>((arguments.num_tokens + kSm90Tokens - 1) / kSm90Tokens)},
          .block = {kSm90Threads},
          .shared_bytes = static_cast<int64_t>(sizeof(Fp8LinearSm90Shared) +
                                               (has_parts ? sizeof(Fp8LinearSm90Parts) : 0) + kTileSlackBytes)},
         has_parts ? fp8_linear_sm90_kernel<true> : fp8_linear_sm90_kernel<false>,
         launched);
}

}  // namespace gpu::DSV3_BACKEND
