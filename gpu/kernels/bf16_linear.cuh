// y = x W^T for few tokens with BF16 operands, FP32 or BF16 out; with batches, one W for each head or expert, an expert's rows counted
// and gathered as in fp8_linear. Every weight is read once, K is cut into splits as there. A token's result does not depend on how many
// tokens there are.
// Covers moe.router_logits, logits, eh_proj, q_latent and context of the absorbed form (W_UK packed transposed), and the linears of
// checkpoints in BF16.
#pragma once

#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/require.hpp"

namespace gpu {

struct Bf16LinearArguments {
  const half16* x = nullptr;              // element k of token t in batch b: x[t * x_stride + b * x_batch_stride + k]
  const int32_t* token_of_row = nullptr;  // [num_batches, num_tokens]: the t that each row reads; null: its own
  const int32_t* num_valid = nullptr;     // [num_batches]: rows of each batch that exist; null: all
  const half16* weight = nullptr;         // [num_batches, out_dim, in_dim]
  float* y_f32 = nullptr;                 // element n likewise, with y's strides; one of y_f32 and y_half16 is null
  half16* y_half16 = nullptr;             // rows that do not exist stay untouched
  float* partial_sums = nullptr;          // [num_splits, num_batches, num_tokens, out_dim]; may be null for one split
  int32_t* arrivals = nullptr;  // [linear_num_tiles()], zero before the first launch and after each; null for one split
  int64_t num_tokens = 0;
  int64_t x_stride = 0;        // a multiple of 8
  int64_t x_batch_stride = 0;  // a multiple of 8
  int64_t y_stride = 0;
  int64_t y_batch_stride = 0;
  int64_t out_dim = 0;
  int64_t in_dim = 0;  // a multiple of 8
  int num_batches = 1;
  int num_splits = 1;  // at most ceil(in_dim / 64)
  int num_parts = 1;   // 1, 2, 4 or 8, a divisor of in_dim / 64 and multiple of num_splits: summed as a binary tree
  float factor = 1;    // of a sum, before it is rounded into y_half16
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kBf16Bytes = 2;

// Grid: (ceil(out_dim / 64), num_splits, num_batches * ceil(num_tokens / kTokens)). Shared memory: LinearShared<kTokens>. x, weight
// 16-byte aligned.
// Rounding: the tensor core's FP32 accumulator over a split's K ascending, splits added ascending in FP32 (with parts: over a part's
// K, parts added as a balanced binary tree); BF16 once if asked.
template <int kTokens>
GPU_KERNEL bf16_linear_kernel(Bf16LinearArguments arguments) {
  constexpr int kColumns = kTokens / kTileColumns;
  auto& shared = *shared_memory_as<LinearShared<kTokens>>();
  const int64_t token_tiles = (arguments.num_tokens + kTokens - 1) / kTokens;
  const int64_t batch = block_idx().z / token_tiles;
  const LinearPlace place{
      .first_row = static_cast<int64_t>(block_idx().x) * kLinearRows,
      .num_rows = arguments.out_dim,
      .first_token = block_idx().z % token_tiles * kTokens,
      .num_tokens = arguments.num_valid != nullptr ? arguments.num_valid[batch] : arguments.num_tokens};
  if (place.first_token >= place.num_tokens) {
    return;
  }
  const int32_t* const token_of_row =
      arguments.token_of_row != nullptr ? arguments.token_of_row + batch * arguments.num_tokens : nullptr;
  const int64_t row_bytes = arguments.in_dim * kBf16Bytes;
  const int64_t num_pieces = (row_bytes + kPieceBytes - 1) / kPieceBytes;
  const int64_t split = block_idx().y;
  const half16* const x = arguments.x + batch * arguments.x_batch_stride;
  const half16* const weight = arguments.weight + batch * arguments.out_dim * arguments.in_dim;

  FragmentC total[1][kColumns];
  clear(total);
  const PartPlace parts = part_place(num_pieces, split, arguments.num_splits, arguments.num_parts);
  for_each_piece<kTokens>(
      shared,
      parts.begin,
      parts.end,
      [&](auto& stage, int piece) {
        const int64_t byte = static_cast<int64_t>(piece) * kPieceBytes;
        copy_pieces<kLinearRows>(stage.weight, weight, row_bytes, byte, [&](int row) -> const half16* {
          const int64_t at = place.first_row + row;
          return at < arguments.out_dim ? weight + at * arguments.in_dim : nullptr;
        });
        copy_pieces<kTokens>(stage.x, x, row_bytes, byte, [&](int row) -> const half16* {
          const int64_t token = place.first_token + row;
          return token < place.num_tokens
                     ? x + (token_of_row != nullptr ? token_of_row[token] : token) * arguments.x_stride
                     : nullptr;
        });
      },
      [&](const auto& stage, int piece) {
        FragmentA a[kPieceSteps][1];
        FragmentB b[kPieceSteps][kColumns];
        load_operands<kTokens>(stage, a, b);
        multiply_half16(total, a, b);
        if (parts.ends_part(piece)) {
          end_part(part_sums(shared), parts.part(piece), piece + 1 == parts.end, total);
        }
      });
  store_results(
      place,
      {.partial_sums = arguments.partial_sums,
       .arrivals = arguments.arrivals,
       .split_len = arguments.num_batches * arguments.num_tokens * arguments.out_dim,
       .num_splits = arguments.num_splits,
       .is_tree = arguments.num_parts > 1},
      shared,
      total,
      [&](int64_t token, int64_t row) { return (batch * arguments.num_tokens + token) * arguments.out_dim + row; },
      [&](int64_t token, int64_t row, float value) {
        const int64_t at = token * arguments.y_stride + batch * arguments.y_batch_stride + row;
        if (arguments.y_f32 != nullptr) {
          arguments.y_f32[at] = value;
        } else {
          arguments.y_half16[at] = to_half16(multiply(value, arguments.factor));
        }
      });
}

inline void bf16_linear(Stream stream, const Bf16LinearArguments& arguments) {
  constexpr int kAlignedLen = kChunkBytes / kBf16Bytes;
  require(arguments.in_dim > 0 && arguments.in_dim % kAlignedLen == 0, "bf16_linear: in_dim has to be a multiple of 8");
  require(arguments.x_stride % kAlignedLen == 0 && arguments.x_batch_stride % kAlignedLen == 0,
          "bf16_linear: rows of x have to start at multiples of 16 bytes");
  require(arguments.num_splits >= 1 &&
              arguments.num_splits <= (arguments.in_dim * kBf16Bytes + kPieceBytes - 1) / kPieceBytes,
          "bf16_linear: 1 to ceil(in_dim / 64) splits");
  require_parts((arguments.in_dim * kBf16Bytes + kPieceBytes - 1) / kPieceBytes,
                arguments.num_splits,
                arguments.num_parts,
                "bf16_linear: parts are 2, 4 or 8, divide the pieces of 64 of in_dim, and splits divide them");
  require(arguments.num_splits == 1 || (arguments.partial_sums != nullptr && arguments.arrivals != nullptr),
          "bf16_linear: splits need partial_sums and arrivals");
  require((arguments.y_f32 == nullptr) != (arguments.y_half16 == nullptr), "bf16_linear: one of y_f32 and y_half16");
  if (arguments.num_tokens == 0 || arguments.out_dim == 0 || arguments.num_batches == 0) {
    return;
  }
  const int tokens = linear_tokens(arguments.num_tokens);
  const auto start = [&](auto kernel, int64_t shared_bytes) {
    launch(stream,
           {.name = "bf16_linear",
            .grid = {static_cast<unsigned>((arguments.out_dim + kLinearRows - 1) / kLinearRows),
                     static_cast<unsigned>(arguments.num_splits),
                     static_cast<unsigned>(arguments.num_batches * ((arguments.num_tokens + tokens - 1) / tokens))},
            .block = {kLinearThreads},
            .shared_bytes = shared_bytes},
           kernel,
           arguments);
  };
  switch (tokens) {
    case 16: start(bf16_linear_kernel<16>, linear_shared_bytes<16>(arguments.num_parts)); break;
    case 32: start(bf16_linear_kernel<32>, linear_shared_bytes<32>(arguments.num_parts)); break;
    default: start(bf16_linear_kernel<64>, linear_shared_bytes<64>(arguments.num_parts)); break;
  }
}

}  // namespace gpu::DSV3_BACKEND
