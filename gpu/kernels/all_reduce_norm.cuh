// The sum of rows over ranks, then residual add, RMSNorm and quantiser: an all-reduce and rms_norm in one, for few tokens.
// Each rank lays its rows where the others reach them and raises flags; then each reads all ranks' rows itself (one shot).
// Covers what rms_norm covers, behind linears that are cut along K.
#pragma once

#include "gpu/kernels/rms_norm.cuh"

namespace gpu {

// What a rank lets its peers reach.
struct AllReduceWindow {
  half16* rows = nullptr;  // [2, max_rows, hidden]: of even and of odd epochs, so that nobody waits until all have read
  uint32_t* flags =
      nullptr;  // [max_rows, num_ranks]: the epoch of the last row that each rank has laid out; zero at first
};

// Every rank launches with the same number of tokens. Before the first launch all ranks have to know that the flags are zero.
struct AllReduceNormArguments {
  RmsNormArguments norm;                     // its x is what this rank adds to the sum
  const AllReduceWindow* windows = nullptr;  // [num_ranks]
  uint32_t* epochs = nullptr;  // [max_rows] of this rank alone: how often each row was used; zero at first
  int64_t max_rows = 0;        // at least norm.num_tokens
  int num_ranks = 1;           // 1 to 8
  int rank = 0;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kAllReduceMaxRanks = 8;

GPU_DEVICE half16* all_reduce_row(const AllReduceNormArguments& arguments, int rank, uint32_t epoch, int64_t token) {
  return arguments.windows[rank].rows + (epoch % 2 * arguments.max_rows + token) * arguments.norm.hidden;
}

// Grid: one block a token. No shared memory. Waits for nobody, so that no rank's blocks hold up another's.
// That the row of two epochs ago may be overwritten: whoever raised the flags of the last epoch had read it before.
GPU_KERNEL lay_out_rows_kernel(AllReduceNormArguments arguments) {
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  const uint32_t epoch = arguments.epochs[token] + 1;
  const half16* const x = arguments.norm.x + token * arguments.norm.x_stride;
  half16* const row = all_reduce_row(arguments, arguments.rank, epoch, token);
  for (int column = thread * kVectorLen; column < arguments.norm.hidden; column += kRmsNormThreads * kVectorLen) {
    store_vector<kVectorLen>(row + column, load_vector<kVectorLen>(x + column));
  }
  sync_threads();  // the row before its flags
  if (thread < arguments.num_ranks) {
    store_release_system(&arguments.windows[thread].flags[token * arguments.num_ranks + arguments.rank], epoch);
  }
  if (thread == 0) {
    arguments.epochs[token] = epoch;
  }
}

// Grid: one block a token. Shared memory: RmsNormShared.
// Rounding and order: FP32, rank 0's value first, then each rank's in ascending order; BF16 once; from there as rms_norm.
GPU_KERNEL all_reduce_norm_kernel(AllReduceNormArguments arguments) {
  const auto token = static_cast<int64_t>(block_idx().x);
  const int thread = static_cast<int>(thread_idx().x);
  const uint32_t epoch = arguments.epochs[token];
  if (thread < arguments.num_ranks) {
    wait_for_flag(&arguments.windows[arguments.rank].flags[token * arguments.num_ranks + thread], epoch);
  }
  sync_threads();
  normalise_row(arguments.norm, token, *shared_memory_as<RmsNormShared>(), [&](int column) {
    float sum[kVectorLen] = {};
    GPU_UNROLL
    for (int rank = 0; rank < kAllReduceMaxRanks; ++rank) {
      if (rank < arguments.num_ranks) {
        const auto row = load_vector<kVectorLen>(all_reduce_row(arguments, rank, epoch, token) + column);
        GPU_UNROLL
        for (int i = 0; i < kVectorLen; ++i) {
          sum[i] = rank == 0 ? to_float(row.at[i]) : add(sum[i], to_float(row.at[i]));
        }
      }
    }
    Vector<half16, kVectorLen> x;
    GPU_UNROLL
    for (int i = 0; i < kVectorLen; ++i) {
      x.at[i] = to_half16(sum[i]);
    }
    return x;
  });
}

inline void all_reduce_norm(Stream stream, const AllReduceNormArguments& arguments) {
  check_norm(arguments.norm);
  require(arguments.num_ranks >= 1 && arguments.num_ranks <= kAllReduceMaxRanks, "all_reduce_norm: 1 to 8 ranks");
  require(arguments.rank >= 0 && arguments.rank < arguments.num_ranks, "all_reduce_norm: the rank is not of the group");
  require(arguments.norm.num_tokens <= arguments.max_rows, "all_reduce_norm: more tokens than max_rows");
  if (arguments.norm.num_tokens == 0) {
    return;
  }
  LaunchShape shape{.name = "all_reduce_norm.lay_out",
                    .grid = {static_cast<unsigned>(arguments.norm.num_tokens)},
                    .block = {kRmsNormThreads}};
  launch(stream, shape, lay_out_rows_kernel, arguments);
  shape.name = "all_reduce_norm";
  shape.shared_bytes = sizeof(RmsNormShared);
  launch(stream, shape, all_reduce_norm_kernel, arguments);
}

}  // namespace gpu::DSV3_BACKEND
