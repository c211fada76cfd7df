// What the linears of decode share: a block computes 64 rows of W by a few tokens, fed by a pipeline of 128-byte pieces of rows, and
// the partial sums of splits of K are added by whichever block comes last, in ascending order. With parts, K is cut finer and summed as a
// balanced binary tree, which is the same tree whichever blocks, or ranks, have the parts. Bytes; the formats are the kernels'.
#pragma once

#include "gpu/portable/fragments.hpp"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::DSV3_BACKEND {

inline constexpr int kLinearThreads = 128;
inline constexpr int kLinearRows = 64;  // of W in a block: 16 a warp
inline constexpr int kLinearStages = 4;
inline constexpr int kPieceBytes = 128;  // of a row: what a stage holds
inline constexpr int kChunkBytes = 16;
inline constexpr int kChunksPerPiece = kPieceBytes / kChunkBytes;
inline constexpr int kPieceSteps = kPieceBytes / kTileBytes;

template <int kTokens>
struct LinearShared {
  struct Stage {
    unsigned char weight[kLinearRows][kPieceBytes];
    unsigned char x[kTokens][kPieceBytes];
  } stages[kLinearStages];
  int32_t is_last;
};

// Pieces lie in shared memory with their 16-byte chunks permuted, so that 8 rows of one column touch all banks.
GPU_DEVICE int swizzled(int row, int chunk) {
  return (chunk ^ (row % kChunksPerPiece)) * kChunkBytes;
}

// Bytes [first_byte, first_byte + 128) of rows; start_of(row) is a row's first byte, or null for a row of zeros; zeros from row_bytes on.
// `somewhere` is any valid address.
template <int kNumRows, typename StartOf>
GPU_DEVICE void copy_pieces(unsigned char (*to)[kPieceBytes],
                            const void* somewhere,
                            int64_t row_bytes,
                            int64_t first_byte,
                            const StartOf& start_of) {
  for (int i = static_cast<int>(thread_idx().x); i < kNumRows * kChunksPerPiece; i += kLinearThreads) {
    const int row = i / kChunksPerPiece;
    const int chunk = i % kChunksPerPiece;
    const int64_t byte = first_byte + chunk * kChunkBytes;
    const void* const start = start_of(row);
    const bool is_inside = start != nullptr && byte < row_bytes;
    copy_async_16(&to[row][swizzled(row, chunk)],
                  is_inside ? static_cast<const unsigned char*>(start) + byte : somewhere,
                  is_inside ? kChunkBytes : 0);
  }
}

// A warp's 16 rows of W and all tokens of a stage, as operands.
template <int kTokens>
GPU_DEVICE void load_operands(const typename LinearShared<kTokens>::Stage& stage,
                              FragmentA (&a)[kPieceSteps][1],
                              FragmentB (&b)[kPieceSteps][kTokens / kTileColumns]) {
  constexpr int kColumns = kTokens / kTileColumns;
  constexpr int kLoads = kPieceSteps * (1 + kColumns / 2);
  const int lane = static_cast<int>(thread_idx().x) % kLanes;
  const int warp_row = static_cast<int>(thread_idx().x) / kLanes * kTileRows;
  const void* rows[kLoads];
  GPU_UNROLL
  for (int step = 0; step < kPieceSteps; ++step) {
    const int row = warp_row + lane % 16;
    rows[step] = &stage.weight[row][swizzled(row, 2 * step + lane / 16)];
    GPU_UNROLL
    for (int pair = 0; pair < kColumns / 2; ++pair) {
      const int token = pair * 16 + lane % 8 + lane / 16 * 8;
      rows[kPieceSteps + step * (kColumns / 2) + pair] = &stage.x[token][swizzled(token, 2 * step + lane / 8 % 2)];
    }
  }
  Vector<uint32_t, 4> loaded[kLoads];
  load_matrices(rows, loaded);
  unpack_operands(loaded, a, b);
}

// Streams pieces [begin, end) through the stages: fill(stage, piece) issues copies, use(stage, piece) multiplies.
template <int kTokens, typename Fill, typename Use>
GPU_DEVICE void for_each_piece(LinearShared<kTokens>& shared, int begin, int end, const Fill& fill, const Use& use) {
  const auto issue = [&](int piece) {
    if (piece < end) {
      fill(shared.stages[(piece - begin) % kLinearStages], piece);
    }
    commit_copies();  // also when empty: wait_copies counts groups
  };
  for (int ahead = 0; ahead < kLinearStages - 1; ++ahead) {
    issue(begin + ahead);
  }
  for (int piece = begin; piece < end; ++piece) {
    wait_copies<kLinearStages - 2>();
    sync_threads();  // the piece is everybody's, and nobody reads the stage that is filled next
    issue(piece + kLinearStages - 1);
    use(shared.stages[(piece - begin) % kLinearStages], piece);
  }
}

template <int kColumns>
GPU_DEVICE void clear(FragmentC (&c)[1][kColumns]) {
  GPU_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    c[0][n] = {{0, 0, 0, 0}};
  }
}

inline constexpr int kMaxTreeLevels = 3;
inline constexpr int kMaxParts = 1 << kMaxTreeLevels;

// Sums of whole subtrees that wait for the part on their right: [level][result of a thread][thread].
template <int kTokens>
struct PartSums {
  float waiting[kMaxTreeLevels][kTokens / 2][kLinearThreads];
};

// Part `part` of a block's own is summed up in total(0) to total(kCount - 1): adds the subtrees that it ends, and starts the next part
// unless it is the last.
template <int kCount, typename Total>
GPU_DEVICE void end_part(float (*waiting)[kCount][kLinearThreads], int part, bool is_last, const Total& total) {
  const auto thread = static_cast<int>(thread_idx().x);
  int level = 0;
  for (; (part >> level & 1) != 0; ++level) {
    GPU_UNROLL
    for (int i = 0; i < kCount; ++i) {
      total(i) = add(waiting[level][i][thread], total(i));
    }
  }
  if (is_last) {
    return;
  }
  GPU_UNROLL
  for (int i = 0; i < kCount; ++i) {
    waiting[level][i][thread] = total(i);
    total(i) = 0;
  }
}
template <int kTokens, int kColumns>
GPU_DEVICE void end_part(PartSums<kTokens>& sums, int part, bool is_last, FragmentC (&total)[1][kColumns]) {
  end_part<kTokens / 2>(sums.waiting, part, is_last, [&](int i) -> float& { return total[0][i / 4].at[i % 4]; });
}

// K of a split as its parts: piece -> is it the last of a part, and of which. Parts are equally long.
struct PartPlace {
  int begin = 0;  // pieces of the split
  int end = 0;
  int part_len = 0;  // 0: one part

  [[nodiscard]] GPU_DEVICE bool ends_part(int piece) const {
    return part_len > 0 && (piece - begin + 1) % part_len == 0;
  }
  [[nodiscard]] GPU_DEVICE int part(int piece) const { return (piece - begin) / part_len; }
};
GPU_DEVICE PartPlace part_place(int64_t num_pieces, int64_t split, int num_splits, int num_parts) {
  return {static_cast<int>(num_pieces * split / num_splits),
          static_cast<int>(num_pieces * (split + 1) / num_splits),
          num_parts > 1 ? static_cast<int>(num_pieces / num_parts) : 0};
}

// Where the results of a block belong.
struct LinearPlace {
  int64_t first_row = 0;  // of W
  int64_t num_rows = 0;   // of W
  int64_t first_token = 0;
  int64_t num_tokens = 0;
};

// visit(token, row, value) for each result that a thread holds.
template <int kColumns, typename Visit>
GPU_DEVICE void for_each_result(const LinearPlace& place, const FragmentC (&c)[1][kColumns], const Visit& visit) {
  const int thread = static_cast<int>(thread_idx().x);
  GPU_UNROLL
  for (int n = 0; n < kColumns; ++n) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t row = place.first_row + thread / kLanes * kTileRows + row_of_c(thread % kLanes, i);
      const int64_t token = place.first_token + n * kTileColumns + column_of_c(thread % kLanes, i);
      if (row < place.num_rows && token < place.num_tokens) {
        visit(token, row, c[0][n].at[i]);
      }
    }
  }
}

// at(0) + ... + at(count - 1) as a balanced binary tree; count is a power of two, at most kMaxParts.
template <typename At>
GPU_DEVICE float tree_sum(int count, const At& at) {
  float sums[kMaxParts];
  GPU_UNROLL
  for (int i = 0; i < kMaxParts; ++i) {
    sums[i] = i < count ? at(i) : 0.0f;
  }
  GPU_UNROLL
  for (int stride = 1; stride < kMaxParts; stride *= 2) {
    GPU_UNROLL
    for (int i = 0; i < kMaxParts; i += 2 * stride) {
      sums[i] = stride < count ? add(sums[i], sums[i + stride]) : sums[i];
    }
  }
  return sums[0];
}

struct LinearSplits {
  float* partial_sums = nullptr;  // [num_splits, split_len]; null for one split
  int32_t* arrivals = nullptr;    // [tiles], zero before the first launch and after each; null for one split
  int64_t split_len = 0;
  int num_splits = 1;
  bool is_tree = false;  // how the splits are added
};

// Stores a block's results: at once, or, if this is the last split of its tile to come here, the sum over the splits, in ascending
// order or as a tree. index_of(token, row) is a result's place among the partial sums.
template <int kTokens, int kColumns, typename IndexOf, typename Store>
GPU_DEVICE void store_results(const LinearPlace& place,
                              const LinearSplits& splits,
                              LinearShared<kTokens>& shared,
                              const FragmentC (&c)[1][kColumns],
                              const IndexOf& index_of,
                              const Store& store) {
  if (splits.num_splits == 1) {
    for_each_result(place, c, store);
    return;
  }
  const int64_t split = block_idx().y;
  for_each_result(place, c, [&](int64_t token, int64_t row, float value) {
    splits.partial_sums[split * splits.split_len + index_of(token, row)] = value;
  });
  sync_threads();
  int32_t* const arrivals = splits.arrivals + (static_cast<int64_t>(block_idx().z) * grid_dim().x + block_idx().x);
  if (thread_idx().x == 0) {
    thread_fence();  // the block's partial sums before its arrival
    shared.is_last = atomic_add(arrivals, 1) == splits.num_splits - 1 ? 1 : 0;
    thread_fence();  // the others' partial sums after theirs
  }
  sync_threads();
  if (shared.is_last == 0) {
    return;
  }
  for_each_result(place, c, [&](int64_t token, int64_t row, float own) {
    const float* const partial = splits.partial_sums + index_of(token, row);
    const auto of_split = [&](int other) { return other == split ? own : partial[other * splits.split_len]; };
    if (splits.is_tree) {
      store(token, row, tree_sum(splits.num_splits, of_split));
      return;
    }
    float sum = of_split(0);
    for (int other = 1; other < splits.num_splits; ++other) {
      sum = add(sum, of_split(other));
    }
    store(token, row, sum);
  });
  if (thread_idx().x == 0) {
    atomic_add(arrivals, -splits.num_splits);  // ready for the next launch
  }
}

// Parts and splits are powers of two, and pieces divide into the parts.
inline void require_parts(int64_t num_pieces, int num_splits, int num_parts, const char* message) {
  const auto is_power_of_two = [](int n) { return n >= 1 && (n & (n - 1)) == 0; };
  require(num_parts == 1 || (is_power_of_two(num_parts) && num_parts <= kMaxParts && num_pieces % num_parts == 0 &&
                             is_power_of_two(num_splits) && num_splits <= num_parts),
          message);
}

// Shared memory of a block.
template <int kTokens>
int64_t linear_shared_bytes(int num_parts) {
  return static_cast<int64_t>(sizeof(LinearShared<kTokens>) + (num_parts > 1 ? sizeof(PartSums<kTokens>) : 0));
}
template <int kTokens>
GPU_DEVICE PartSums<kTokens>& part_sums(LinearShared<kTokens>& shared) {
  return *reinterpret_cast<PartSums<kTokens>*>(&shared + 1);
}

// Tokens that one block takes: the smallest of 16, 32 and 64 that holds them all.
inline int linear_tokens(int64_t num_tokens) {
  return num_tokens <= 16 ? 16 : num_tokens <= 32 ? 32 : 64;
}
// Blocks of one split: the length of `arrivals`.
inline int64_t linear_num_tiles(int64_t num_tokens, int64_t out_dim, int64_t num_groups = 1) {
  const int64_t tokens = linear_tokens(num_tokens);
  return num_groups * ((out_dim + kLinearRows - 1) / kLinearRows) * ((num_tokens + tokens - 1) / tokens);
}

}  // namespace gpu::DSV3_BACKEND
