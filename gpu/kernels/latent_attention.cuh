// Absorbed MLA over the paged latent cache: scores, softmax and the weighted sum of latents, for any number of new tokens a sequence.
// The keys of a sequence are cut into splits of a fixed number of pages, so that a token's bits do not depend on its neighbours; a
// scheduler finds the splits on the device, and a combine adds them in ascending order. Pages of 64 positions, BF16.
// Covers probs (never stored), lse and o_latent of the absorbed form.
#pragma once

#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct LatentAttentionArguments {
  const bf16* q_latent = nullptr;        // [num_tokens, num_heads, kv_lora]
  const bf16* q_rope = nullptr;          // [num_tokens, num_heads, rope]
  const bf16* cache = nullptr;           // [num_pages, 64, kv_lora + rope]
  const int32_t* block_table = nullptr;  // [num_sequences, max_pages]: read as far as the keys go
  const int32_t* num_keys = nullptr;  // [num_sequences]: cached and new; 0: padding, its output is 0 and its lse -inf
  const int32_t* first_token = nullptr;  // [num_sequences + 1]: new tokens of a sequence, the last ones of its keys
  int32_t* first_split = nullptr;        // [num_sequences + 1]: written by the scheduler, as is split_sequence
  int32_t* split_sequence = nullptr;     // [max_splits]: the sequence of each split, -1 beyond the last
  float* partial_o = nullptr;            // [max_splits, max_new * num_heads, kv_lora]: not divided by the sum
  float* partial_stats = nullptr;        // [max_splits, max_new * num_heads, 2]: largest score, sum
  bf16* o_latent = nullptr;              // [num_tokens, num_heads, kv_lora]
  float* lse = nullptr;                  // [num_tokens, num_heads], natural logarithm, or null
  int num_sequences = 0;
  int max_pages = 0;        // of a sequence
  int max_splits = 0;       // at least the sum over sequences of ceil(keys / (64 * pages_per_split))
  int max_new = 0;          // tokens of a sequence, at most
  int pages_per_split = 4;  // the same for all calls whose bits are compared
  int num_heads = 0;
  int kv_lora = 0;  // 512 with rope 64, or 128 with 32
  int rope = 0;
  float scale = 0;
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kPageLen = 64;
inline constexpr int kAttentionThreads = 128;
inline constexpr int kAttentionWarps = kAttentionThreads / kLanes;
inline constexpr int kAttentionStages = 2;
inline constexpr int kKeysPerWarp = kPageLen / kAttentionWarps;

template <int kLatent, int kRope>
struct LatentAttentionShared {
  static constexpr int kRowBytes = (kLatent + kRope) * 2;
  static constexpr int kPieces = (kRowBytes + kPieceBytes - 1) / kPieceBytes;
  unsigned char q[kTileRows][kPieces][kPieceBytes];
  unsigned char keys[kAttentionStages][kPageLen][kPieces][kPieceBytes];
  unsigned char p[kTileRows][kPieceBytes];
  float largest[kAttentionWarps][kTileRows];
  float sums[kAttentionWarps][kTileRows];
};

// exp(x - largest), 0 where nothing was seen yet.
GPU_DEVICE float weight_of(float x, float largest) {
  return x == -INFINITY ? 0.0f : expf(x - largest);
}

// Grid: one block of one warp. No shared memory.
GPU_KERNEL schedule_splits_kernel(LatentAttentionArguments arguments) {
  const int lane = static_cast<int>(thread_idx().x);
  const int keys_per_split = arguments.pages_per_split * kPageLen;
  int base = 0;
  for (int first = 0; first < arguments.num_sequences; first += kLanes) {
    const int sequence = first + lane;
    const bool exists = sequence < arguments.num_sequences;
    const int mine = exists ? (arguments.num_keys[sequence] + keys_per_split - 1) / keys_per_split : 0;
    int up_to_here = mine;
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const int before = shuffle_from(kFullWarp, up_to_here, lane >= distance ? lane - distance : lane);
      up_to_here += lane >= distance ? before : 0;
    }
    if (exists) {
      const int first_split = base + up_to_here - mine;
      arguments.first_split[sequence] = first_split;
      for (int i = first_split; i < first_split + mine && i < arguments.max_splits; ++i) {
        arguments.split_sequence[i] = sequence;
      }
    }
    base += shuffle_from(kFullWarp, up_to_here, kLanes - 1);
  }
  if (lane == 0) {
    arguments.first_split[arguments.num_sequences] = base;
  }
  for (int i = base + lane; i < arguments.max_splits; i += kLanes) {
    arguments.split_sequence[i] = -1;
  }
}

// Grid: (ceil(max_new * num_heads / 16), max_splits); a block takes 16 (token, head) rows of a sequence and the pages of one split.
// Shared memory: LatentAttentionShared. Rows 16-byte aligned.
// Rounding: q . k by the tensor core in FP32, times scale; exp(s - largest so far) in FP32, BF16 for the product with c, FP32 for the
// sum. Order: pages ascending, earlier ones scaled down when a larger score comes (the reference's rule kOnline64, for each split).
template <int kLatent, int kRope>
GPU_KERNEL latent_attention_kernel(LatentAttentionArguments arguments) {
  using Shared = LatentAttentionShared<kLatent, kRope>;
  constexpr int kColumnsPerWarp = kLatent / kAttentionWarps;
  constexpr int kTilesPerChunk = 4;
  constexpr int kChunks = kColumnsPerWarp / kTileColumns / kTilesPerChunk;
  static_assert(kChunks * kTilesPerChunk * kTileColumns * kAttentionWarps == kLatent,
                "a warp takes whole chunks of columns");
  auto& shared = *shared_memory_as<Shared>();
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
      auto& stage = shared.keys[(page - first_page) % kAttentionStages];
      const int64_t first_slot = static_cast<int64_t>(pages[page]) * kPageLen;
      for (int i = thread; i < kPageLen * Shared::kPieces * kChunksPerPiece; i += kAttentionThreads) {
        const int key = i / (Shared::kPieces * kChunksPerPiece);
        const int chunk = i % (Shared::kPieces * kChunksPerPiece);
        const bool is_inside = page * kPageLen + key < num_keys && chunk * kChunkBytes < Shared::kRowBytes;
        copy_async_16(&stage[key][chunk / kChunksPerPiece][swizzled(key, chunk % kChunksPerPiece)],
                      is_inside ? arguments.cache + (first_slot + key) * (kLatent + kRope) + chunk * (kChunkBytes / 2)
                                : arguments.cache,
                      is_inside ? kChunkBytes : 0);
      }
    }
    commit_copies();
  };
  // The rows of q: latent, then rope; zeros beyond the last row.
  for (int i = thread; i < kTileRows * Shared::kPieces * kChunksPerPiece; i += kAttentionThreads) {
    const int row = i / (Shared::kPieces * kChunksPerPiece);
    const int chunk = i % (Shared::kPieces * kChunksPerPiece);
    const int column = chunk * (kChunkBytes / 2);
    const int64_t at = first_token * heads + first_row + row;
    const bool is_inside = first_row + row < num_rows && column < kLatent + kRope;
    const bf16* const from = column < kLatent ? arguments.q_latent + at * kLatent + column
                                              : arguments.q_rope + at * kRope + column - kLatent;
    copy_async_16(&shared.q[row][chunk / kChunksPerPiece][swizzled(row, chunk % kChunksPerPiece)],
                  is_inside ? from : arguments.q_latent,
                  is_inside ? kChunkBytes : 0);
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
    const auto& keys = shared.keys[(page - first_page) % kAttentionStages];
    FragmentC scores[1][2];
    clear(scores);
    GPU_UNROLL
    for (int piece = 0; piece < Shared::kPieces; ++piece) {
      const void* rows[2 * kPieceSteps];
      GPU_UNROLL
      for (int step = 0; step < kPieceSteps; ++step) {
        const int row = lane % 16;
        const int key = warp * kKeysPerWarp + lane % 8 + lane / 16 * 8;
        rows[step] = &shared.q[row][piece][swizzled(row, 2 * step + lane / 16)];
        rows[kPieceSteps + step] = &keys[key][piece][swizzled(key, 2 * step + lane / 8 % 2)];
      }
      Vector<uint32_t, 4> loaded[2 * kPieceSteps];
      load_matrices(rows, loaded);
      FragmentA a[kPieceSteps][1];
      FragmentB b[kPieceSteps][2];
      GPU_UNROLL
      for (int step = 0; step < kPieceSteps; ++step) {
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) {
          a[step][0].at[i] = loaded[step].at[i];
          b[step][i / 2].at[i % 2] = loaded[kPieceSteps + step].at[i];
        }
      }
      multiply_bf16(scores, a, b);
    }
    float page_largest[2] = {-INFINITY, -INFINITY};
    GPU_UNROLL
    for (int n = 0; n < 2; ++n) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = page * kPageLen + warp * kKeysPerWarp + n * kTileColumns + column_of_c(lane, i);
        const int token = (first_row + row_of_c(lane, i)) / heads;
        const bool is_visible = key <= num_keys - num_new + token && key < num_keys;
        scores[0][n].at[i] = is_visible ? multiply(scores[0][n].at[i], arguments.scale) : -INFINITY;
        page_largest[i / 2] = fmaxf(page_largest[i / 2], scores[0][n].at[i]);
      }
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
      const float before = largest[half];
      for (int other = 0; other < kAttentionWarps; ++other) {
        largest[half] = fmaxf(largest[half], shared.largest[other][lane / 4 + 8 * half]);
      }
      factor[half] = weight_of(before, largest[half]);
      sum[half] = multiply(sum[half], factor[half]);
    }
    GPU_UNROLL
    for (int n = 0; n < 2; ++n) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        Vector<bf16, 2> pair;
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) {
          const float weight = weight_of(scores[0][n].at[2 * half + i], largest[half]);
          sum[half] = add(sum[half], weight);
          pair.at[i] = to_bf16(weight);
        }
        const int row = lane / 4 + 8 * half;
        const int byte = (warp * kKeysPerWarp + n * kTileColumns + lane % 4 * 2) * 2;
        store_vector<2>(reinterpret_cast<bf16*>(&shared.p[row][swizzled(row, byte / kChunkBytes) + byte % kChunkBytes]),
                        pair);
      }
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
    // Element (key, column) of the page's latents as 16 bits; two keys make one register of operand B.
    const auto latent_bits = [&](int key, int column) {
      const int chunk = column / (kChunkBytes / 2);
      const auto* const row = &keys[key][chunk / kChunksPerPiece][swizzled(key, chunk % kChunksPerPiece)];
      return static_cast<uint32_t>(reinterpret_cast<const bf16*>(row)[column % (kChunkBytes / 2)].bits);
    };
    GPU_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      FragmentB b[kPieceSteps][kTilesPerChunk];
      GPU_UNROLL
      for (int n = 0; n < kTilesPerChunk; ++n) {
        const int column = warp * kColumnsPerWarp + (chunk * kTilesPerChunk + n) * kTileColumns + lane / 4;
        GPU_UNROLL
        for (int i = 0; i < 4; ++i) {
          o[chunk][0][n].at[i] = multiply(o[chunk][0][n].at[i], factor[i / 2]);
        }
        GPU_UNROLL
        for (int step = 0; step < kPieceSteps; ++step) {
          GPU_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int key = step * 16 + i * 8 + lane % 4 * 2;
            b[step][n].at[i] = latent_bits(key, column) | latent_bits(key + 1, column) << 16;
          }
        }
      }
      multiply_bf16(o[chunk], p, b);
    }
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
  const int64_t first_partial = split * arguments.max_new * heads + first_row;
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = lane / 4 + 8 * half;
    if (first_row + row >= num_rows) {
      continue;
    }
    if (warp == 0 && lane % 4 == 0) {
      float all = shared.sums[0][row];
      for (int other = 1; other < kAttentionWarps; ++other) {
        all = add(all, shared.sums[other][row]);
      }
      arguments.partial_stats[(first_partial + row) * 2] = largest[half];
      arguments.partial_stats[(first_partial + row) * 2 + 1] = all;
    }
    GPU_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      GPU_UNROLL
      for (int n = 0; n < kTilesPerChunk; ++n) {
        const int column = warp * kColumnsPerWarp + (chunk * kTilesPerChunk + n) * kTileColumns + lane % 4 * 2;
        store_vector<2>(arguments.partial_o + (first_partial + row) * kLatent + column,
                        Vector<float, 2>{{o[chunk][0][n].at[2 * half], o[chunk][0][n].at[2 * half + 1]}});
      }
    }
  }
}

// Grid: (max_new * num_heads, num_sequences). No shared memory.
// Rounding: FP32; one division, BF16 once. Order: splits ascending, weighted by exp(largest - largest of all).
GPU_KERNEL combine_splits_kernel(LatentAttentionArguments arguments) {
  const auto row = static_cast<int64_t>(block_idx().x);
  const auto sequence = static_cast<int>(block_idx().y);
  const int64_t first_token = arguments.first_token[sequence];
  if (row >= (arguments.first_token[sequence + 1] - first_token) * arguments.num_heads) {
    return;
  }
  const int begin = arguments.first_split[sequence];
  const int end = arguments.first_split[sequence + 1];
  const int64_t rows_per_split = static_cast<int64_t>(arguments.max_new) * arguments.num_heads;
  float largest = -INFINITY;
  for (int split = begin; split < end; ++split) {
    largest = fmaxf(largest, arguments.partial_stats[(split * rows_per_split + row) * 2]);
  }
  float sum = 0;
  for (int split = begin; split < end; ++split) {
    const float* const stats = arguments.partial_stats + (split * rows_per_split + row) * 2;
    sum = add(sum, multiply(weight_of(stats[0], largest), stats[1]));
  }
  const int64_t out_row = first_token * arguments.num_heads + row;
  if (arguments.lse != nullptr && thread_idx().x == 0) {
    arguments.lse[out_row] = sum == 0 ? -INFINITY : add(largest, logf(sum));
  }
  for (int column = static_cast<int>(thread_idx().x); column < arguments.kv_lora; column += kAttentionThreads) {
    float value = 0;
    for (int split = begin; split < end; ++split) {
      const int64_t at = split * rows_per_split + row;
      const float weight = weight_of(arguments.partial_stats[at * 2], largest);
      value = add(value, multiply(weight, arguments.partial_o[at * arguments.kv_lora + column]));
    }
    arguments.o_latent[out_row * arguments.kv_lora + column] = to_bf16(sum == 0 ? 0.0f : divide(value, sum));
  }
}

// Scheduler, attention, combine.
inline void latent_attention(Stream stream, const LatentAttentionArguments& arguments) {
  const bool is_v3 = arguments.kv_lora == 512 && arguments.rope == 64;
  require(is_v3 || (arguments.kv_lora == 128 && arguments.rope == 32),
          "latent_attention: kv_lora_rank and qk_rope_head_dim have to be 512 and 64, or 128 and 32");
  require(arguments.pages_per_split >= 1, "latent_attention: at least one page a split");
  if (arguments.num_sequences == 0 || arguments.max_new == 0) {
    return;
  }
  launch(stream, {.name = "schedule_splits", .grid = {1}, .block = {kLanes}}, schedule_splits_kernel, arguments);
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
  if (arguments.max_splits > 0) {
    if (is_v3) {
      start(latent_attention_kernel<512, 64>, sizeof(LatentAttentionShared<512, 64>));
    } else {
      start(latent_attention_kernel<128, 32>, sizeof(LatentAttentionShared<128, 32>));
    }
  }
  launch(stream,
         {.name = "combine_splits",
          .grid = {static_cast<unsigned>(arguments.max_new * arguments.num_heads),
                   static_cast<unsigned>(arguments.num_sequences)},
          .block = {kAttentionThreads}},
         combine_splits_kernel,
         arguments);
}

}  // namespace gpu::DSV3_BACKEND
