// y = x W^T for few tokens: E4M3 codes with 1x128 scales of x and 128x128 scales of W, BF16 out. Every weight is read once; K is cut
// into splits whose partial sums the last block adds in ascending order, so the bits do not depend on which block is last.
// A token's result does not depend on how many tokens there are. Covers the FP8 linears of decode: q_a, kv_a, q_b, o_proj, mlp.*, shared.*.
#pragma once

#include "gpu/portable/fragments.hpp"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct Fp8LinearArguments {
  const fp8_e4m3* x = nullptr;          // [num_tokens, in_dim]
  const float* x_scale = nullptr;       // [ceil(in_dim / 128), x_scale_stride]: token-minor
  const fp8_e4m3* weight = nullptr;     // [out_dim, in_dim]
  const float* weight_scale = nullptr;  // [ceil(out_dim / 128), ceil(in_dim / 128)]
  bf16* y = nullptr;                    // [num_tokens, out_dim]
  float* partial_sums = nullptr;        // [num_splits, num_tokens, out_dim]; may be null for one split
  int32_t* arrivals =
      nullptr;  // [fp8_linear_num_tiles()], zero before the first launch and after each; null for one split
  int64_t num_tokens = 0;
  int64_t x_scale_stride = 0;  // at least num_tokens
  int64_t out_dim = 0;
  int64_t in_dim = 0;  // a multiple of 16
  int num_splits = 1;  // at most ceil(in_dim / 128)
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kFp8LinearThreads = 128;
inline constexpr int kFp8LinearRows = 64;  // of W in a block: 16 a warp
inline constexpr int kFp8LinearStages = 4;
inline constexpr int kChunkBytes = 16;
inline constexpr int kChunksPerRow = kScaleBlockLen / kChunkBytes;

template <int kTokens>
struct Fp8LinearShared {
  struct Stage {
    fp8_e4m3 weight[kFp8LinearRows][kScaleBlockLen];
    fp8_e4m3 x[kTokens][kScaleBlockLen];
  } stages[kFp8LinearStages];
  int32_t is_last;
};

// Rows of 128 bytes lie in shared memory with their 16-byte chunks permuted, so that 8 rows of one column touch all banks.
GPU_DEVICE int swizzled(int row, int chunk) {
  return (chunk ^ (row % kChunksPerRow)) * kChunkBytes;
}

// Rows [first_row, first_row + num_rows) of one 128-column block of a row-major matrix; what lies outside the matrix becomes 0.
template <int kNumRows>
GPU_DEVICE void copy_block(fp8_e4m3 (*to)[kScaleBlockLen],
                           const fp8_e4m3* matrix,
                           int64_t first_row,
                           int64_t num_rows,
                           int64_t row_len,
                           int64_t column) {
  for (int i = static_cast<int>(thread_idx().x); i < kNumRows * kChunksPerRow; i += kFp8LinearThreads) {
    const int row = i / kChunksPerRow;
    const int chunk = i % kChunksPerRow;
    const int64_t at = column + chunk * kChunkBytes;
    const bool is_inside = first_row + row < num_rows && at < row_len;
    copy_async_16(&to[row][swizzled(row, chunk)],
                  is_inside ? matrix + (first_row + row) * row_len + at : matrix,
                  is_inside ? kChunkBytes : 0);
  }
}

// The products of one 128-block: 16 rows of W by kTokens tokens, from zero.
template <int kTokens>
GPU_DEVICE void multiply_block(const typename Fp8LinearShared<kTokens>::Stage& stage,
                               FragmentC (&c)[1][kTokens / kTileColumns]) {
  constexpr int kSteps = kScaleBlockLen / kTileBytes;
  constexpr int kColumns = kTokens / kTileColumns;
  const int lane = static_cast<int>(thread_idx().x) % kLanes;
  const int warp_row = static_cast<int>(thread_idx().x) / kLanes * kTileRows;
  constexpr int kLoads = kSteps * (1 + kColumns / 2);
  const void* rows[kLoads];
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    const int row = warp_row + lane % 16;
    rows[step] = &stage.weight[row][swizzled(row, 2 * step + lane / 16)];
    GPU_UNROLL
    for (int pair = 0; pair < kColumns / 2; ++pair) {
      const int token = pair * 16 + lane % 8 + lane / 16 * 8;
      rows[kSteps + step * (kColumns / 2) + pair] = &stage.x[token][swizzled(token, 2 * step + lane / 8 % 2)];
    }
  }
  Vector<uint32_t, 4> loaded[kLoads];
  load_matrices(rows, loaded);
  FragmentA a[kSteps][1];
  FragmentB b[kSteps][kColumns];
  GPU_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      a[step][0].at[i] = loaded[step].at[i];
    }
    GPU_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      const auto& of_pair = loaded[kSteps + step * (kColumns / 2) + n / 2];
      b[step][n] = {of_pair.at[n % 2 * 2], of_pair.at[n % 2 * 2 + 1]};
    }
  }
  GPU_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    c[0][n] = {{0, 0, 0, 0}};
  }
  multiply_e4m3(c, a, b);
}

// Grid: (ceil(out_dim / 64), num_splits, ceil(num_tokens / kTokens)). Shared memory: Fp8LinearShared<kTokens>. x, weight 16-byte aligned.
// Rounding: each 128-block's dot by the tensor core; times (s_x * s_w), added in FP32 in ascending blocks of a split, splits ascending; BF16.
template <int kTokens>
GPU_KERNEL fp8_linear_kernel(Fp8LinearArguments arguments) {
  constexpr int kColumns = kTokens / kTileColumns;
  auto& shared = *shared_memory_as<Fp8LinearShared<kTokens>>();
  const int thread = static_cast<int>(thread_idx().x);
  const int lane = thread % kLanes;
  const int64_t first_row = static_cast<int64_t>(block_idx().x) * kFp8LinearRows;
  const int64_t first_token = static_cast<int64_t>(block_idx().z) * kTokens;
  const int64_t num_blocks = (arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen;
  const int64_t split = block_idx().y;
  const auto begin = static_cast<int>(num_blocks * split / arguments.num_splits);
  const auto end = static_cast<int>(num_blocks * (split + 1) / arguments.num_splits);

  const auto issue = [&](int block) {
    if (block < end) {
      auto& stage = shared.stages[(block - begin) % kFp8LinearStages];
      const int64_t column = static_cast<int64_t>(block) * kScaleBlockLen;
      copy_block<kFp8LinearRows>(
          stage.weight, arguments.weight, first_row, arguments.out_dim, arguments.in_dim, column);
      copy_block<kTokens>(stage.x, arguments.x, first_token, arguments.num_tokens, arguments.in_dim, column);
    }
    commit_copies();  // also when empty: wait_copies counts groups
  };
  for (int ahead = 0; ahead < kFp8LinearStages - 1; ++ahead) {
    issue(begin + ahead);
  }
  FragmentC total[1][kColumns];
  GPU_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    total[0][n] = {{0, 0, 0, 0}};
  }
  for (int block = begin; block < end; ++block) {
    wait_copies<kFp8LinearStages - 2>();
    sync_threads();  // the block's data is everybody's, and nobody reads the stage that is filled next
    issue(block + kFp8LinearStages - 1);
    FragmentC products[1][kColumns];
    multiply_block<kTokens>(shared.stages[(block - begin) % kFp8LinearStages], products);
    const float weight_scale = arguments.weight_scale[first_row / kScaleBlockLen * num_blocks + block];
    GPU_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      float scales[2] = {0, 0};
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int64_t token = first_token + n * kTileColumns + column_of_c(lane, i);
        if (token < arguments.num_tokens) {
          scales[i] = multiply(arguments.x_scale[block * arguments.x_scale_stride + token], weight_scale);
        }
      }
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        total[0][n].at[i] = add(total[0][n].at[i], multiply(products[0][n].at[i], scales[i % 2]));
      }
    }
  }
  const auto for_each_result = [&](const auto& visit) {
    GPU_UNROLL
    for (int n = 0; n < kColumns; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first_row + thread / kLanes * kTileRows + row_of_c(lane, i);
        const int64_t token = first_token + n * kTileColumns + column_of_c(lane, i);
        if (row < arguments.out_dim && token < arguments.num_tokens) {
          visit(token * arguments.out_dim + row, total[0][n].at[i]);
        }
      }
    }
  };
  if (arguments.num_splits == 1) {
    for_each_result([&](int64_t at, float value) { arguments.y[at] = to_bf16(value); });
    return;
  }
  const int64_t split_len = arguments.num_tokens * arguments.out_dim;
  for_each_result([&](int64_t at, float value) { arguments.partial_sums[split * split_len + at] = value; });
  sync_threads();
  int32_t* const arrivals = arguments.arrivals + (static_cast<int64_t>(block_idx().z) * grid_dim().x + block_idx().x);
  if (thread == 0) {
    thread_fence();  // the block's partial sums before its arrival
    shared.is_last = atomic_add(arrivals, 1) == arguments.num_splits - 1 ? 1 : 0;
    thread_fence();  // the others' partial sums after theirs
  }
  sync_threads();
  if (shared.is_last == 0) {
    return;
  }
  for_each_result([&](int64_t at, float /*own*/) {
    float sum = arguments.partial_sums[at];
    for (int other = 1; other < arguments.num_splits; ++other) {
      sum = add(sum, arguments.partial_sums[other * split_len + at]);
    }
    arguments.y[at] = to_bf16(sum);
  });
  if (thread == 0) {
    atomic_add(arrivals, -arguments.num_splits);  // ready for the next launch
  }
}

// Tokens that one block takes: the smallest of 16, 32 and 64 that holds them all.
inline int fp8_linear_tokens(int64_t num_tokens) {
  return num_tokens <= 16 ? 16 : num_tokens <= 32 ? 32 : 64;
}
inline int64_t fp8_linear_num_tiles(int64_t num_tokens, int64_t out_dim) {
  const int64_t tokens = fp8_linear_tokens(num_tokens);
  return (out_dim + kFp8LinearRows - 1) / kFp8LinearRows * ((num_tokens + tokens - 1) / tokens);
}

inline void fp8_linear(Stream stream, const Fp8LinearArguments& arguments) {
  require(arguments.in_dim > 0 && arguments.in_dim % kChunkBytes == 0, "fp8_linear: in_dim has to be a multiple of 16");
  require(arguments.num_splits >= 1 && arguments.num_splits <= (arguments.in_dim + kScaleBlockLen - 1) / kScaleBlockLen,
          "fp8_linear: 1 to ceil(in_dim / 128) splits");
  require(arguments.num_splits == 1 || (arguments.partial_sums != nullptr && arguments.arrivals != nullptr),
          "fp8_linear: splits need partial_sums and arrivals");
  require(arguments.x_scale_stride >= arguments.num_tokens, "fp8_linear: x_scale_stride is at least num_tokens");
  if (arguments.num_tokens == 0 || arguments.out_dim == 0) {
    return;
  }
  const int tokens = fp8_linear_tokens(arguments.num_tokens);
  const auto start = [&](auto kernel, int64_t shared_bytes) {
    launch(stream,
           {.name = "fp8_linear",
            .grid = {static_cast<unsigned>((arguments.out_dim + kFp8LinearRows - 1) / kFp8LinearRows),
                     static_cast<unsigned>(arguments.num_splits),
                     static_cast<unsigned>((arguments.num_tokens + tokens - 1) / tokens)},
            .block = {kFp8LinearThreads},
            .shared_bytes = shared_bytes},
           kernel,
           arguments);
  };
  switch (tokens) {
    case 16: start(fp8_linear_kernel<16>, sizeof(Fp8LinearShared<16>)); break;
    case 32: start(fp8_linear_kernel<32>, sizeof(Fp8LinearShared<32>)); break;
    default: start(fp8_linear_kernel<64>, sizeof(Fp8LinearShared<64>)); break;
  }
}

}  // namespace gpu::DSV3_BACKEND
