// Absorbed MLA over the paged latent cache: scores, softmax and the weighted sum of latents, for any number of new tokens a sequence.
// The keys of a sequence are cut into splits of a fixed number of pages, so that a token's bits do not depend on its neighbours; a
// scheduler finds the splits on the device, and a combine adds them in ascending order. Pages of 64 positions, BF16 or FP8.
// Covers probs (never stored), lse and o_latent of the absorbed form.
#pragma once

#include "gpu/kernels/attention_tiles.cuh"
#include "gpu/kernels/latent_pages.cuh"
#include "gpu/kernels/latent_splits.cuh"
#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::DSV3_BACKEND {

inline constexpr int kAttentionWarps = kAttentionThreads / kLanes;
inline constexpr int kKeysPerWarp = kPageLen / kAttentionWarps;
static_assert(kKeysPerWarp == kTileColumns, "a warp scores one tile of keys");

template <int kLatent, int kRope, typename Pages>
struct LatentAttentionShared {
  LatentRow<kLatent, kRope> q[kTileRows];
  Pages pages;
  unsigned char p[kTileRows][kPieceBytes];
  float largest[kAttentionWarps][kTileRows];
  float sums[kAttentionWarps][kTileRows];
};

// Grid: (ceil(max_new * num_heads / 16), max_splits); a block takes 16 (token, head) rows of a sequence and the pages of one split.
// Shared memory: LatentAttentionShared. Rows 16-byte aligned. kLatent and kRope are at least the model's widths.
// Rounding: q . k by the tensor core in FP32, times scale; exp(s - largest so far) in FP32, BF16 for the product with c, FP32 for the
// sum. Order: pages ascending, earlier ones scaled down when a larger score comes (the reference's rule kOnline64, for each split).
template <int kLatent, int kRope, typename Pages>
GPU_KERNEL latent_attention_kernel(LatentAttentionArguments arguments) {
  using Row = LatentRow<kLatent, kRope>;
  constexpr int kColumnsPerWarp = kLatent / kAttentionWarps;
  constexpr int kTiles = kColumnsPerWarp / kTileColumns;  // of a warp's part of the output
  constexpr int kTilesPerChunk = kTiles < 4 ? kTiles : 4;
  constexpr int kChunks = kTiles / kTilesPerChunk;
  static_assert(kChunks * kTilesPerChunk * kTileColumns * kAttentionWarps == kLatent,
                "a warp takes whole chunks of columns");
  auto& shared = *shared_memory_as<LatentAttentionShared<kLatent, kRope, Pages>>();
  const int thread = static_cast<int>(thread_idx().x);
  const int lane = thread % kLanes;
  const int warp = thread / kLanes;
  const auto split = static_cast<int64_t>(block_idx().y);
  const int sequence = arguments.split_sequence[split];
  if (sequence < 0) {
    return;
  }
  const int heads = arguments.num_heads;
  const int first_row = static_cast<int>(block_idx().x) * kTileRows;
  const int64_t first_token = arguments.first_token[sequence];
  const int num_new = static_cast<int>(arguments.first_token[sequence + 1] - first_token);
  const int num_rows = num_new * heads;
  if (first_row >= num_rows) {
    return;
  }
  const int num_keys = arguments.num_keys[sequence];
  const int first_page = (static_cast<int>(split) - arguments.first_split[sequence]) * arguments.pages_per_split;
  const int all_pages = (num_keys + kPageLen - 1) / kPageLen;
  const int end_page =
      first_page + arguments.pages_per_split < all_pages ? first_page + arguments.pages_per_split : all_pages;
  const int32_t* const pages = arguments.block_table + static_cast<int64_t>(sequence) * arguments.max_pages;

  const auto issue = [&](int page) {
    if (page < end_page) {
      copy_page(
          shared.pages, arguments, (page - first_page) % kAttentionStages, pages[page], num_keys - page * kPageLen);
    }
    commit_copies();
  };
  for (int i = thread; i < kTileRows * Row::kChunks; i += kAttentionThreads) {
    const int row = i / Row::kChunks;
    const int chunk = i % Row::kChunks;
    const int64_t at = first_token * heads + first_row + row;
    copy_row_chunk<kLatent, kRope>(chunk_of(shared.q[row], row, chunk),
                                   chunk,
                                   arguments.q_latent + at * arguments.kv_lora,
                                   arguments.q_rope + at * arguments.rope,
                                   arguments,
                                   first_row + row < num_rows);
  }
  issue(first_page);  // with q in its group

  FragmentC o[kChunks][1][kTilesPerChunk];
  GPU_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    clear(o[chunk]);
  }
  float largest[2] = {-INFINITY, -INFINITY};  // of rows lane / 4 and lane / 4 + 8
  float sum[2] = {0, 0};                      // of this thread's keys
  for (int page = first_page; page < end_page; ++page) {
    wait_copies<0>();
    sync_threads();
    issue(page + 1);
    const auto& keys = keys_of(shared.pages, arguments, (page - first_page) % kAttentionStages);
    FragmentC scores[1][1];
    clear(scores);
    GPU_UNROLL
    for (int piece = 0; piece < Row::kPieces; ++piece) {
      const void* rows[kPieceSteps + kPieceSteps / 2];
      GPU_UNROLL
      for (int step = 0; step < kPieceSteps; ++step) {
        const int row = lane % 16;
        const int key = warp * kKeysPerWarp + lane % 8;
        rows[step] = &shared.q[row].pieces[piece][swizzled(row, 2 * step + lane / 16)];
        if (step % 2 == 0) {  // operand B of two steps at once
          rows[kPieceSteps + step / 2] = &keys[key].pieces[piece][swizzled(key, 2 * step + lane / 8)];
        }
      }
      Vector<uint32_t, 4> loaded[kPieceSteps + kPieceSteps / 2];
      load_matrices(rows, loaded);
      FragmentA a[kPieceSteps][1];
      FragmentB b[kPieceSteps][1];
      GPU_UNROLL
      for (int step = 0; step < kPieceSteps; ++step) {
        const auto& of_pair = loaded[kPieceSteps + step / 2];
        b[step][0] = {{of_pair.at[step % 2 * 2], of_pair.at[step % 2 * 2 + 1]}};
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) {
          a[step][0].at[i] = loaded[step].at[i];
        }
      }
      multiply_half16(scores, a, b);
    }
    float page_largest[2] = {-INFINITY, -INFINITY};
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int key = page * kPageLen + warp * kKeysPerWarp + column_of_c(lane, i);
      const int token = (first_row + row_of_c(lane, i)) / heads;
      const bool is_visible = key <= num_keys - num_new + token && key < num_keys;
      scores[0][0].at[i] = is_visible ? multiply(scores[0][0].at[i], arguments.scale) : -INFINITY;
      page_largest[i / 2] = fmaxf(page_largest[i / 2], scores[0][0].at[i]);
    }
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      page_largest[half] = group_max(page_largest[half], 4);
      if (lane % 4 == 0) {
        shared.largest[warp][lane / 4 + 8 * half] = page_largest[half];
      }
    }
    sync_threads();
    float factor[2];
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
      const float before = largest[half];
      for (int other = 0; other < kAttentionWarps; ++other) {
        largest[half] = fmaxf(largest[half], shared.largest[other][row]);
      }
      factor[half] = weight_of(before, largest[half]);
      sum[half] = multiply(sum[half], factor[half]);
      Vector<half16, 2> pair;
      GPU_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float weight = weight_of(scores[0][0].at[2 * half + i], largest[half]);
        sum[half] = add(sum[half], weight);
        pair.at[i] = to_half16(weight);
      }
      const int byte = (warp * kKeysPerWarp + lane % 4 * 2) * 2;
      store_vector<2>(reinterpret_cast<half16*>(&shared.p[row][swizzled(row, byte / kChunkBytes) + byte % kChunkBytes]),
                      pair);
    }
    sync_threads();
    FragmentA p[kPieceSteps][1];
    const void* p_rows[kPieceSteps];
    Vector<uint32_t, 4> p_loaded[kPieceSteps];
    GPU_UNROLL
    for (int step = 0; step < kPieceSteps; ++step) {
      p_rows[step] = &shared.p[lane % 16][swizzled(lane % 16, 2 * step + lane / 16)];
    }
    load_matrices(p_rows, p_loaded);
    GPU_UNROLL
    for (int step = 0; step < kPieceSteps; ++step) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        p[step][0].at[i] = p_loaded[step].at[i];
      }
    }
    add_weighted_values(o, factor, p, [&](int key, int tile) -> const void* {
      const int at = warp * kTiles + tile;
      return &keys[key].pieces[at / kChunksPerPiece][swizzled(key, at % kChunksPerPiece)];
    });
  }
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    sum[half] = add(sum[half], shuffle_xor(kFullWarp, sum[half], 1));
    sum[half] = add(sum[half], shuffle_xor(kFullWarp, sum[half], 2));
    if (lane % 4 == 0) {
      shared.sums[warp][lane / 4 + 8 * half] = sum[half];
    }
  }
  sync_threads();
  // A sequence of one split needs no combine, which would divide by the same sum.
  const bool is_whole = arguments.first_split[sequence + 1] - arguments.first_split[sequence] == 1;
  const int64_t first_partial = split * arguments.max_new * heads + first_row;
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    if (first_row + row >= num_rows) {
      continue;
    }
    const int64_t out_row = first_token * heads + first_row + row;
    float all = shared.sums[0][row];
    for (int other = 1; other < kAttentionWarps; ++other) {
      all = add(all, shared.sums[other][row]);
    }
    if (warp == 0 && lane % 4 == 0) {
      if (!is_whole) {
        arguments.partial_stats[(first_partial + row) * 2] = largest[half];
        arguments.partial_stats[(first_partial + row) * 2 + 1] = all;
      } else if (arguments.lse != nullptr) {
        arguments.lse[out_row] = add(largest[half], logf(all));
      }
    }
    GPU_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      GPU_UNROLL
      for (int n = 0; n < kTilesPerChunk; ++n) {
        const int column = warp * kColumnsPerWarp + (chunk * kTilesPerChunk + n) * kTileColumns + lane % 4 * 2;
        if (column >= arguments.kv_lora) {
          continue;
        }
        const Vector<float, 2> values{{o[chunk][0][n].at[2 * half], o[chunk][0][n].at[2 * half + 1]}};
        if (is_whole) {
          store_vector<2>(
              arguments.o_latent + out_row * arguments.kv_lora + column,
              Vector<half16, 2>{{to_half16(divide(values.at[0], all)), to_half16(divide(values.at[1], all))}});
        } else {
          store_vector<2>(arguments.partial_o + (first_partial + row) * arguments.kv_lora + column, values);
        }
      }
    }
  }
}

template <int kLatent, int kRope>
void launch_latent_attention(Stream stream, const LatentAttentionArguments& arguments) {
  const auto start = [&](auto kernel, int64_t shared_bytes) {
    launch(stream,
           {.name = "latent_attention",
            .grid = {static_cast<unsigned>((arguments.max_new * arguments.num_heads + kTileRows - 1) / kTileRows),
                     static_cast<unsigned>(arguments.max_splits)},
            .block = {kAttentionThreads},
            .shared_bytes = shared_bytes},
           kernel,
           arguments);
  };
  using Bf16 = LatentPagesBf16<kLatent, kRope>;
  using Fp8 = LatentPagesFp8<kLatent, kRope>;
  if (arguments.cache_fp8 == nullptr) {
    start(latent_attention_kernel<kLatent, kRope, Bf16>, sizeof(LatentAttentionShared<kLatent, kRope, Bf16>));
  } else if constexpr (has_fp8_cache(kLatent, kRope)) {
    start(latent_attention_kernel<kLatent, kRope, Fp8>, sizeof(LatentAttentionShared<kLatent, kRope, Fp8>));
  }
}

// Scheduler, attention, combine.
inline void latent_attention(Stream stream, const LatentAttentionArguments& arguments) {
  require(has_latent_attention(arguments.kv_lora, arguments.rope), kLatentAttentionWidths);
  require((arguments.cache == nullptr) != (arguments.cache_fp8 == nullptr),
          "latent_attention: one of cache and cache_fp8");
  require(arguments.cache_fp8 == nullptr || has_fp8_cache(arguments.kv_lora, arguments.rope), kFp8CacheWidths);
  require(arguments.pages_per_split >= 1, "latent_attention: at least one page a split");
  if (arguments.num_sequences == 0 || arguments.max_new == 0) {
    return;
  }
  launch(stream, {.name = "schedule_splits", .grid = {1}, .block = {kLanes}}, schedule_splits_kernel, arguments);
  if (arguments.max_splits > 0) {
    if (arguments.kv_lora <= 64 && arguments.rope <= 32) {
      launch_latent_attention<64, 32>(stream, arguments);
    } else if (arguments.kv_lora <= 128 && arguments.rope <= 64) {
      launch_latent_attention<128, 64>(stream, arguments);
    } else if (arguments.kv_lora <= 256) {
      launch_latent_attention<256, 128>(stream, arguments);
    } else {
      launch_latent_attention<512, 64>(stream, arguments);
    }
  }
  launch(stream,
         {.name = "combine_splits",
          .grid = {static_cast<unsigned>(arguments.max_new * arguments.num_heads),
                   static_cast<unsigned>(arguments.num_sequences)},
          .block = {kCombineSplitsThreads}},
         combine_splits_kernel,
         arguments);
}

}  // namespace gpu::DSV3_BACKEND
