// y = x W^T for few tokens: E4M3 codes with 1x128 scales of x and 128x128 scales of W, BF16 out. Every weight is read once; K is cut
// into splits whose partial sums the last block adds in ascending order, or as a tree of parts that ranks can share, so the bits do not
// depend on which block is last.
// A token's result does not depend on how many tokens there are. With groups it is the masked grouped GEMM of the routed experts:
// each group has its own W and a count of valid rows on the device, whose x lies in the group's own rows or is gathered from tokens.
// Covers the FP8 linears of decode: q_a, kv_a, q_b, o_proj, mlp.*, moe.shared.*, moe.expert.*.
#pragma once

#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/require.hpp"

namespace gpu {

struct Fp8LinearArguments {
  const fp8_e4m3* x = nullptr;     // [num_groups, num_tokens, in_dim]; gathered: [any, in_dim]
  const float* x_scale = nullptr;  // [num_groups, ceil(in_dim / 128), x_scale_stride]: token-minor; gathered: no groups
  const int32_t* token_of_row = nullptr;  // [num_groups, num_tokens]: the row of x that each row reads; null: its own
  const int32_t* num_valid = nullptr;     // [num_groups]: rows of each group that exist; null: all
  const fp8_e4m3* weight = nullptr;       // [num_groups, out_dim, in_dim]
  const float* weight_scale = nullptr;    // [num_groups, ceil(out_dim / 128), ceil(in_dim / 128)]
  half16* y = nullptr;                    // [num_groups, num_tokens, out_dim]; rows that do not exist stay untouched
  float* y_f32 = nullptr;                 // the same, unrounded, in place of y
  float* partial_sums = nullptr;          // [num_splits, num_groups, num_tokens, out_dim]; may be null for one split
  int32_t* arrivals = nullptr;  // [linear_num_tiles()], zero before the first launch and after each; null for one split
  int64_t num_tokens = 0;       // of a group, at most
  int64_t x_scale_stride = 0;   // at least num_tokens; gathered: at least the rows of x
  int64_t out_dim = 0;
  int64_t in_dim = 0;  // a multiple of 16
  int num_groups = 1;
  int num_splits = 1;  // at most ceil(in_dim / 128)
  int num_parts = 1;   // 1, 2, 4 or 8, a divisor of in_dim / 128 and multiple of num_splits: summed as a binary tree
  float factor = 1;    // of a sum, before it is rounded into y
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

// Grid: (ceil(out_dim / 64), num_splits, num_groups * ceil(num_tokens / kTokens)). Shared memory: LinearShared<kTokens>. x, weight
// 16-byte aligned.
// Rounding: each 128-block's dot by the tensor core; times (s_x * s_w), added in FP32 in ascending blocks of a split, splits ascending
// (with parts: ascending in a part, parts as a balanced binary tree); BF16.
template <int kTokens>
GPU_KERNEL fp8_linear_kernel(Fp8LinearArguments arguments) {
  constexpr int kColumns = kTokens / kTileColumns;
  static_assert(kScaleBlockLen == kPieceBytes, "a piece of E4M3 codes has one scale");
  auto& shared = *shared_memory_as<LinearShared<kTokens>>();
  const int lane = static_cast<int>(thread_idx().x) % kLanes;
  const int64_t token_tiles = (arguments.num_tokens + kTokens - 1) / kTokens;
  const int64_t group = block_idx().z / token_tiles;
  const LinearPlace place{
      .first_row = static_cast<int64_t>(block_idx().x) * kLinearRows,
      .num_rows = arguments.out_dim,
      .first_token = block_idx().z % token_tiles * kTokens,
      .num_tokens = arguments.num_valid != nullptr ? arguments.num_valid[group] : arguments.num_tokens};
  if (place.first_token >= place.num_tokens) {
    return;
  }
  const int64_t num_blocks = (arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen;
  const int64_t split = block_idx().y;
  const int64_t first_group_row = group * arguments.num_tokens;
  const bool gathers = arguments.token_of_row != nullptr;
  const fp8_e4m3* const x = gathers ? arguments.x : arguments.x + first_group_row * arguments.in_dim;
  const float* const x_scale =
      gathers ? arguments.x_scale : arguments.x_scale + group * num_blocks * arguments.x_scale_stride;
  const fp8_e4m3* const weight = arguments.weight + group * arguments.out_dim * arguments.in_dim;
  const float* const weight_scale =
      arguments.weight_scale +
      (group * ((arguments.out_dim + kScaleBlockLen - 1) / kScaleBlockLen) + place.first_row / kScaleBlockLen) *
          num_blocks;
  const auto x_row = [&](int64_t token) -> int64_t {
    return gathers ? arguments.token_of_row[first_group_row + token] : token;
  };

  FragmentC total[1][kColumns];
  clear(total);
  const PartPlace parts = part_place(num_blocks, split, arguments.num_splits, arguments.num_parts);
  for_each_piece<kTokens>(
      shared,
      parts.begin,
      parts.end,
      [&](auto& stage, int block) {
        const int64_t column = static_cast<int64_t>(block) * kScaleBlockLen;
        copy_pieces<kLinearRows>(stage.weight, weight, arguments.in_dim, column, [&](int row) -> const fp8_e4m3* {
          const int64_t at = place.first_row + row;
          return at < arguments.out_dim ? weight + at * arguments.in_dim : nullptr;
        });
        copy_pieces<kTokens>(stage.x, x, arguments.in_dim, column, [&](int row) -> const fp8_e4m3* {
          const int64_t token = place.first_token + row;
          return token < place.num_tokens ? x + x_row(token) * arguments.in_dim : nullptr;
        });
      },
      [&](const auto& stage, int block) {
        FragmentA a[kPieceSteps][1];
        FragmentB b[kPieceSteps][kColumns];
        load_operands<kTokens>(stage, a, b);
        FragmentC products[1][kColumns];
        clear(products);
        multiply_e4m3(products, a, b);
        GPU_UNROLL
        for (int n = 0; n < kColumns; ++n) {
          float scales[2] = {0, 0};
          GPU_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int64_t token = place.first_token + n * kTileColumns + column_of_c(lane, i);
            if (token < place.num_tokens) {
              scales[i] = multiply(x_scale[block * arguments.x_scale_stride + x_row(token)], weight_scale[block]);
            }
          }
          GPU_UNROLL
          for (int i = 0; i < 4; ++i) {
            total[0][n].at[i] = add(total[0][n].at[i], multiply(products[0][n].at[i], scales[i % 2]));
          }
        }
        if (parts.ends_part(block)) {
          end_part(part_sums(shared), parts.part(block), block + 1 == parts.end, total);
        }
      });
  const auto index_of = [&](int64_t token, int64_t row) { return (first_group_row + token) * arguments.out_dim + row; };
  store_results(place,
                {.partial_sums = arguments.partial_sums,
                 .arrivals = arguments.arrivals,
                 .split_len = arguments.num_groups * arguments.num_tokens * arguments.out_dim,
                 .num_splits = arguments.num_splits,
                 .is_tree = arguments.num_parts > 1},
                shared,
                total,
                index_of,
                [&](int64_t token, int64_t row, float value) {
                  if (arguments.y_f32 != nullptr) {
                    arguments.y_f32[index_of(token, row)] = value;
                  } else {
                    arguments.y[index_of(token, row)] = to_half16(multiply(value, arguments.factor));
                  }
                });
}

inline void fp8_linear(Stream stream, const Fp8LinearArguments& arguments) {
  require(arguments.in_dim > 0 && arguments.in_dim % kChunkBytes == 0, "fp8_linear: in_dim has to be a multiple of 16");
  require(arguments.num_splits >= 1 && arguments.num_splits <= (arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen,
          "fp8_linear: 1 to ceil(in_dim / 128) splits");
  require_parts((arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen,
                arguments.num_splits,
                arguments.num_parts,
                "fp8_linear: parts are 2, 4 or 8, divide the 128-blocks of in_dim, and splits divide them");
  require((arguments.y == nullptr) != (arguments.y_f32 == nullptr), "fp8_linear: one of y and y_f32");
  require(arguments.num_splits == 1 || (arguments.partial_sums != nullptr && arguments.arrivals != nullptr),
          "fp8_linear: splits need partial_sums and arrivals");
  require(arguments.token_of_row != nullptr || arguments.x_scale_stride >= arguments.num_tokens,
          "fp8_linear: x_scale_stride is at least num_tokens");
  if (arguments.num_tokens == 0 || arguments.out_dim == 0 || arguments.num_groups == 0) {
    return;
  }
  const int tokens = linear_tokens(arguments.num_tokens);
  const auto start = [&](auto kernel, int64_t shared_bytes) {
    launch(stream,
           {.name = "fp8_linear",
            .grid = {static_cast<unsigned>((arguments.out_dim + kLinearRows - 1) / kLinearRows),
                     static_cast<unsigned>(arguments.num_splits),
                     static_cast<unsigned>(arguments.num_groups * ((arguments.num_tokens + tokens - 1) / tokens))},
            .block = {kLinearThreads},
            .shared_bytes = shared_bytes},
           kernel,
           arguments);
  };
  switch (tokens) {
    case 16: start(fp8_linear_kernel<16>, linear_shared_bytes<16>(arguments.num_parts)); break;
    case 32: start(fp8_linear_kernel<32>, linear_shared_bytes<32>(arguments.num_parts)); break;
    default: start(fp8_linear_kernel<64>, linear_shared_bytes<64>(arguments.num_parts)); break;
  }
}

}  // namespace gpu::DSV3_BACKEND
