// Rows of experts, packed one expert behind another and each expert's padded to whole tiles: from what align says of the masked form to
// what the contiguous grouped linears take. For many tokens, where gathering from the rows of all experts would leave tiles half empty.
// Covers no op: it moves x_fp8 and x_scale.
#pragma once

#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

// Behind align with the same ids (behind receive: the slots of this rank's inbox).
struct PackRowsArguments {
  const fp8_e4m3* codes = nullptr;     // [num_tokens, hidden]
  const float* scales = nullptr;       // [ceil(hidden / 128), num_tokens]: token-minor
  const int32_t* ids = nullptr;        // [num_tokens, k]; an id outside [0, num_groups) is a padding choice
  const int32_t* num_valid = nullptr;  // [num_groups]
  int32_t* row_of_choice = nullptr;    // [num_tokens, k]: in, group * num_tokens + row; out, the packed row
  fp8_e4m3* packed_codes = nullptr;    // [num_tiles * 64, hidden]; rows of padding are not written
  float* packed_scales = nullptr;      // [num_tiles, ceil(hidden / 128), 64]
  int32_t* group_of_tile = nullptr;    // [num_tiles]: -1 behind the last one
  int32_t* rows_of_tile = nullptr;     // [num_tiles]: of 64 those that exist; 0 behind the last one
  int64_t num_tokens = 0;
  int64_t num_tiles = 0;  // at least packed_tiles()
  int num_groups = 0;
  int k = 0;       // 1 to 32
  int hidden = 0;  // a multiple of 16
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kPackThreads = 128;
inline constexpr int kPackMaxChoices = 32;

struct PackShared {
  int32_t rows[kPackMaxChoices];  // packed rows of the token's choices; -1: none
};

// Tiles that hold the rows however the tokens choose.
inline int64_t packed_tiles(int64_t num_tokens, int k, int num_groups) {
  const int64_t most_rows = num_tokens * (k < num_groups ? k : num_groups);
  return most_rows / kSm90Tokens + (most_rows < num_groups ? most_rows : num_groups);
}

GPU_DEVICE int32_t tiles_of(int32_t num_rows) {
  return (num_rows + kSm90Tokens - 1) / kSm90Tokens;
}
GPU_DEVICE int32_t first_tile_of(const PackRowsArguments& arguments, int group) {
  int32_t first = 0;
  for (int earlier = 0; earlier < group; ++earlier) {
    first += tiles_of(arguments.num_valid[earlier]);
  }
  return first;
}

// Grid: one block a token. Shared memory: PackShared. Rows 16-byte aligned. The first block also says whose each tile is.
GPU_KERNEL pack_rows_kernel(PackRowsArguments arguments) {
  constexpr int kCodes = 16;
  PackShared& shared = *shared_memory_as<PackShared>();
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  if (token == 0) {
    for (int group = thread; group < arguments.num_groups; group += kPackThreads) {
      const int32_t first = first_tile_of(arguments, group);
      const int32_t end = first + tiles_of(arguments.num_valid[group]);
      for (int32_t tile = first; tile < end; ++tile) {
        const int32_t num_left = arguments.num_valid[group] - (tile - first) * kSm90Tokens;
        arguments.group_of_tile[tile] = group;
        arguments.rows_of_tile[tile] = num_left < kSm90Tokens ? num_left : kSm90Tokens;
      }
      for (int64_t tile = end; group == arguments.num_groups - 1 && tile < arguments.num_tiles; ++tile) {
        arguments.group_of_tile[tile] = -1;
        arguments.rows_of_tile[tile] = 0;
      }
    }
  }
  if (thread < arguments.k) {
    const int64_t choice = token * arguments.k + thread;
    const int32_t group = arguments.ids[choice];
    int32_t row = -1;
    if (group >= 0 && group < arguments.num_groups) {
      const int64_t row_in_group = arguments.row_of_choice[choice] - group * arguments.num_tokens;
      row = static_cast<int32_t>(first_tile_of(arguments, group) * kSm90Tokens + row_in_group);
      arguments.row_of_choice[choice] = row;
    }
    shared.rows[thread] = row;
  }
  sync_threads();
  const int64_t num_blocks = (arguments.hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  for (int choice = 0; choice < arguments.k; ++choice) {
    const int64_t row = shared.rows[choice];
    if (row < 0) {
      continue;
    }
    for (int column = thread * kCodes; column < arguments.hidden; column += kPackThreads * kCodes) {
      store_vector<kCodes>(arguments.packed_codes + row * arguments.hidden + column,
                           load_vector<kCodes>(arguments.codes + token * arguments.hidden + column));
    }
    for (int64_t block = thread; block < num_blocks; block += kPackThreads) {
      arguments.packed_scales[(row / kSm90Tokens * num_blocks + block) * kSm90Tokens + row % kSm90Tokens] =
          arguments.scales[block * arguments.num_tokens + token];
    }
  }
}

inline void pack_rows(Stream stream, const PackRowsArguments& arguments) {
  require(arguments.k >= 1 && arguments.k <= kPackMaxChoices, "pack_rows: 1 to 32 experts a token");
  require(arguments.num_groups >= 1, "pack_rows: at least one group");
  require(arguments.hidden > 0 && arguments.hidden % 16 == 0, "pack_rows: hidden has to be a multiple of 16");
  require(arguments.num_tiles >= packed_tiles(arguments.num_tokens, arguments.k, arguments.num_groups) &&
              arguments.num_tiles * kSm90Tokens <= INT32_MAX,
          "pack_rows: too few tiles for what tokens may choose, or too many for 32-bit row numbers");
  if (arguments.num_tokens > 0) {
    launch(stream,
           {.name = "pack_rows",
            .grid = {static_cast<unsigned>(arguments.num_tokens)},
            .block = {kPackThreads},
            .shared_bytes = sizeof(PackShared)},
           pack_rows_kernel,
           arguments);
  }
}

}  // namespace gpu::DSV3_BACKEND
