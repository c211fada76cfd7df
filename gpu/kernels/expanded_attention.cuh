// Attention of prefill on expanded keys and values: causal, any number of sequences of any length, and the keys may come in chunks,
// each merged with the earlier ones by natural log-sum-exp. Covers probs (never stored), lse and context of the expanded form.
#pragma once

#include "gpu/kernels/attention_tiles.cuh"
#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/kernel.hpp"
#include "gpu/portable/require.hpp"

namespace gpu {

struct ExpandedAttentionArguments {
  const half16* q = nullptr;       // [num_tokens, num_heads, nope + rope]: the nope part is read
  const half16* q_rope = nullptr;  // [num_tokens, num_heads, rope]
  const half16* kv = nullptr;      // [rows, num_heads, nope + v]: this chunk's keys, one sequence after another
  const half16* k_rope = nullptr;  // [rows, rope]
  const int32_t* first_row =
      nullptr;  // [num_sequences + 1]: a sequence's rows of kv; none: it is not part of this chunk
  const int32_t* first_key = nullptr;    // [num_sequences]: position of a sequence's first row
  const int32_t* num_keys = nullptr;     // [num_sequences]: of all chunks, new tokens included
  const int32_t* first_token = nullptr;  // [num_sequences + 1]: new tokens of a sequence, the last ones of its keys
  half16* context = nullptr;             // [num_tokens, num_heads, v], or null: not the last chunk
  float* o_state = nullptr;              // [num_tokens, num_heads, v], divided by its sum; null for keys in one chunk
  float* lse = nullptr;  // [num_tokens, num_heads], natural logarithm; -inf: no key seen. Null for one chunk
  int num_sequences = 0;
  int max_new = 0;  // tokens of a sequence, at most
  int num_heads = 0;
  int nope = 0;  // all three multiples of 8, see has_expanded_attention()
  int rope = 0;
  int v = 0;
  float scale = 0;
  bool has_earlier = false;  // o_state and lse hold earlier chunks
};

// Which widths the kernel has, for those who load a model; the words that refuse the others.
inline constexpr const char* kExpandedAttentionWidths =
    "expanded_attention: qk_nope_head_dim, qk_rope_head_dim and v_head_dim have to be multiples of 8; "
    "nope + rope up to 256, v up to 128";
inline bool has_expanded_attention(int64_t nope, int64_t rope, int64_t v) {
  return nope > 0 && rope > 0 && v > 0 && nope % 8 == 0 && rope % 8 == 0 && v % 8 == 0 && nope + rope <= 256 &&
         v <= 128;
}

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

inline constexpr int kPrefillThreads = 128;
inline constexpr int kPrefillRows = 64;  // queries of one head in a block: 16 a warp
inline constexpr int kPrefillKeys = 64;  // in a stage
inline constexpr int kPrefillStages = 2;

// Rows of q and k are [nope | rope], zeros up to kQk; those of v zeros up to kV.
template <int kQk, int kV>
struct ExpandedAttentionShared {
  static constexpr int kQkPieces = kQk * 2 / kPieceBytes;
  static constexpr int kVPieces = kV * 2 / kPieceBytes;
  unsigned char q[kPrefillRows][kQkPieces][kPieceBytes];
  struct Stage {
    unsigned char k[kPrefillKeys][kQkPieces][kPieceBytes];
    unsigned char v[kPrefillKeys][kVPieces][kPieceBytes];
  } stages[kPrefillStages];
};

// What one chunk gives for one element of the context, and what earlier chunks gave, weighted by exp of their lse: 0 where neither
// saw a key.
struct ChunkWeights {
  float earlier = 0;
  float mine = 1;
  float sum = 1;
  float lse = 0;
};
GPU_DEVICE ChunkWeights weigh_chunks(float earlier_lse, float my_lse) {
  const float largest = fmaxf(earlier_lse, my_lse);
  ChunkWeights weights{.earlier = weight_of(earlier_lse, largest), .mine = weight_of(my_lse, largest)};
  weights.sum = add(weights.earlier, weights.mine);
  weights.lse = weights.sum == 0 ? -INFINITY : add(largest, logf(weights.sum));
  return weights;
}

// Grid: (ceil(max_new / 64), num_heads, num_sequences). Shared memory: ExpandedAttentionShared. Rows 16-byte aligned.
// Rounding: q . k by the tensor core in FP32, nope then rope, times scale; exp(s - largest so far) in FP32, BF16 for the product with
// v, FP32 for the sum; one division, BF16 once. Order: blocks of 64 keys ascending, earlier ones scaled down when a larger score comes
// (the reference's rule kOnline64, for each chunk); within a block a thread's keys ascending, then its four lanes as a butterfly.
template <int kQk, int kV>
GPU_KERNEL expanded_attention_kernel(ExpandedAttentionArguments arguments) {
  using Shared = ExpandedAttentionShared<kQk, kV>;
  constexpr int kKeyTiles = kPrefillKeys / kTileColumns;
  constexpr int kTilesPerChunk = 4;
  constexpr int kChunks = kV / kTileColumns / kTilesPerChunk;
  auto& shared = *shared_memory_as<Shared>();
  const int thread = static_cast<int>(thread_idx().x);
  const int lane = thread % kLanes;
  const int warp_row = thread / kLanes * kTileRows;
  const auto sequence = static_cast<int>(block_idx().z);
  const int64_t head = block_idx().y;
  const int64_t heads = arguments.num_heads;
  const int64_t first_token = arguments.first_token[sequence];
  const int num_new = static_cast<int>(arguments.first_token[sequence + 1] - first_token);
  const int first_query = static_cast<int>(block_idx().x) * kPrefillRows;
  if (first_query >= num_new) {
    return;
  }
  const int64_t first_row = arguments.first_row[sequence];
  const int num_rows = static_cast<int>(arguments.first_row[sequence + 1] - first_row);
  const int first_position = arguments.num_keys[sequence] - num_new;  // of the sequence's query 0
  // Query i of the sequence sees rows 0 to first_visible + i.
  const int first_visible = first_position - arguments.first_key[sequence];
  const int last_query = (first_query + kPrefillRows < num_new ? first_query + kPrefillRows : num_new) - 1;
  const int num_seen = first_visible + last_query + 1 < num_rows ? first_visible + last_query + 1 : num_rows;
  const int num_blocks = (num_seen + kPrefillKeys - 1) / kPrefillKeys;  // none or fewer: nothing is seen here

  // Row r of a matrix of [main | rope] rows, each main_len + rope_len long, zeros behind; nothing of a row that does not exist.
  const auto copy_row_chunk =
      [&](void* to, int chunk, bool exists, const half16* main, int main_len, const half16* rope, int rope_len) {
        const int column = chunk * (kChunkBytes / 2);
        const bool is_inside = exists && column < main_len + rope_len;
        const half16* const from = column < main_len ? main + column : rope + (column - main_len);
        copy_async_16(to, is_inside ? from : arguments.q, is_inside ? kChunkBytes : 0);
      };
  const auto issue = [&](int block) {
    if (block < num_blocks) {
      auto& stage = shared.stages[block % kPrefillStages];
      constexpr int kQkChunks = Shared::kQkPieces * kChunksPerPiece;
      constexpr int kRowChunks = kQkChunks + Shared::kVPieces * kChunksPerPiece;
      for (int i = thread; i < kPrefillKeys * kRowChunks; i += kPrefillThreads) {
        const int key = i / kRowChunks;
        const int at = i % kRowChunks;
        const bool exists = block * kPrefillKeys + key < num_rows;
        const int64_t row = first_row + block * kPrefillKeys + key;
        const half16* const nope = arguments.kv + (row * heads + head) * (arguments.nope + arguments.v);
        if (at < kQkChunks) {
          copy_row_chunk(&stage.k[key][at / kChunksPerPiece][swizzled(key, at % kChunksPerPiece)],
                         at,
                         exists,
                         nope,
                         arguments.nope,
                         arguments.k_rope + row * arguments.rope,
                         arguments.rope);
        } else {
          const int chunk = at - kQkChunks;
          copy_row_chunk(&stage.v[key][chunk / kChunksPerPiece][swizzled(key, chunk % kChunksPerPiece)],
                         chunk,
                         exists,
                         nope + arguments.nope,
                         arguments.v,
                         nope,
                         0);
        }
      }
    }
    commit_copies();
  };
  for (int i = thread; i < kPrefillRows * Shared::kQkPieces * kChunksPerPiece; i += kPrefillThreads) {
    const int row = i / (Shared::kQkPieces * kChunksPerPiece);
    const int chunk = i % (Shared::kQkPieces * kChunksPerPiece);
    const int64_t at = (first_token + first_query + row) * heads + head;
    copy_row_chunk(&shared.q[row][chunk / kChunksPerPiece][swizzled(row, chunk % kChunksPerPiece)],
                   chunk,
                   first_query + row < num_new,
                   arguments.q + at * (arguments.nope + arguments.rope),
                   arguments.nope,
                   arguments.q_rope + at * arguments.rope,
                   arguments.rope);
  }
  issue(0);  // with q in its group

  FragmentC o[kChunks][1][kTilesPerChunk];
  GPU_UNROLL
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    clear(o[chunk]);
  }
  float largest[2] = {-INFINITY, -INFINITY};  // of rows lane / 4 and lane / 4 + 8
  float sum[2] = {0, 0};                      // of this thread's keys
  for (int block = 0; block < num_blocks; ++block) {
    wait_copies<0>();
    sync_threads();
    issue(block + 1);
    const auto& stage = shared.stages[block % kPrefillStages];
    FragmentC scores[1][kKeyTiles];
    clear(scores);
    GPU_UNROLL
    for (int piece = 0; piece < Shared::kQkPieces; ++piece) {
      constexpr int kLoads = kPieceSteps * (1 + kKeyTiles / 2);
      const void* rows[kLoads];
      GPU_UNROLL
      for (int step = 0; step < kPieceSteps; ++step) {
        const int row = warp_row + lane % 16;
        rows[step] = &shared.q[row][piece][swizzled(row, 2 * step + lane / 16)];
        GPU_UNROLL
        for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
          const int key = pair * 16 + lane % 8 + lane / 16 * 8;
          rows[kPieceSteps + step * (kKeyTiles / 2) + pair] =
              &stage.k[key][piece][swizzled(key, 2 * step + lane / 8 % 2)];
        }
      }
      Vector<uint32_t, 4> loaded[kLoads];
      load_matrices(rows, loaded);
      FragmentA a[kPieceSteps][1];
      FragmentB b[kPieceSteps][kKeyTiles];
      unpack_operands(loaded, a, b);
      multiply_half16(scores, a, b);
    }
    float factor[2];
    GPU_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int query = first_query + warp_row + lane / 4 + 8 * half;
      const float before = largest[half];
      float block_largest = -INFINITY;
      GPU_UNROLL
      for (int n = 0; n < kKeyTiles; ++n) {
        GPU_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int row = block * kPrefillKeys + n * kTileColumns + column_of_c(lane, i);
          const bool is_visible = row <= first_visible + query && row < num_rows;
          float& score = scores[0][n].at[i];
          score = is_visible ? multiply(score, arguments.scale) : -INFINITY;
          block_largest = fmaxf(block_largest, score);
        }
      }
      largest[half] = fmaxf(before, group_max(block_largest, 4));
      factor[half] = weight_of(before, largest[half]);
      sum[half] = multiply(sum[half], factor[half]);
    }
    // The weights as operand A: two tiles of keys are one step.
    FragmentA p[kPieceSteps][1];
    GPU_UNROLL
    for (int n = 0; n < kKeyTiles; ++n) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        uint32_t pair = 0;
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) {
          const float weight = weight_of(scores[0][n].at[2 * half + i], largest[half]);
          sum[half] = add(sum[half], weight);
          pair |= static_cast<uint32_t>(to_half16(weight).bits) << (16 * i);
        }
        p[n / 2][0].at[n % 2 * 2 + half] = pair;
      }
    }
    add_weighted_values(o, factor, p, [&](int key, int tile) -> const void* {
      return &stage.v[key][tile / kChunksPerPiece][swizzled(key, tile % kChunksPerPiece)];
    });
  }
  wait_copies<0>();  // of a block that sees nothing
  ChunkWeights weights[2];
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    sum[half] = add(sum[half], shuffle_xor(kFullWarp, sum[half], 1));
    sum[half] = add(sum[half], shuffle_xor(kFullWarp, sum[half], 2));
    weights[half].lse = sum[half] == 0 ? -INFINITY : add(largest[half], logf(sum[half]));
    const int query = first_query + warp_row + lane / 4 + 8 * half;
    if (arguments.has_earlier && query < num_new) {
      weights[half] = weigh_chunks(arguments.lse[(first_token + query) * heads + head], weights[half].lse);
    }
  }
  sync_warp();  // all lanes have read the earlier lse
  GPU_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + warp_row + lane / 4 + 8 * half;
    if (query >= num_new) {
      continue;
    }
    const int64_t out_row = (first_token + query) * heads + head;
    GPU_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      GPU_UNROLL
      for (int n = 0; n < kTilesPerChunk; ++n) {
        const int column = (chunk * kTilesPerChunk + n) * kTileColumns + lane % 4 * 2;
        if (column >= arguments.v) {
          continue;
        }
        const int64_t at = out_row * arguments.v + column;
        Vector<float, 2> value;
        GPU_UNROLL
        for (int i = 0; i < 2; ++i) {
          value.at[i] = sum[half] == 0 ? 0.0f : divide(o[chunk][0][n].at[2 * half + i], sum[half]);
        }
        if (arguments.has_earlier) {
          const auto earlier = load_vector<2>(arguments.o_state + at);
          GPU_UNROLL
          for (int i = 0; i < 2; ++i) {
            const float both =
                add(multiply(weights[half].earlier, earlier.at[i]), multiply(weights[half].mine, value.at[i]));
            value.at[i] = weights[half].sum == 0 ? 0.0f : divide(both, weights[half].sum);
          }
        }
        if (arguments.o_state != nullptr) {
          store_vector<2>(arguments.o_state + at, value);
        }
        if (arguments.context != nullptr) {
          store_vector<2>(arguments.context + at, Vector<half16, 2>{{to_half16(value.at[0]), to_half16(value.at[1])}});
        }
      }
    }
    if (arguments.lse != nullptr && lane % 4 == 0) {
      arguments.lse[out_row] = weights[half].lse;
    }
  }
}

inline void expanded_attention(Stream stream, const ExpandedAttentionArguments& arguments) {
  require(has_expanded_attention(arguments.nope, arguments.rope, arguments.v), kExpandedAttentionWidths);
  require(!arguments.has_earlier || (arguments.o_state != nullptr && arguments.lse != nullptr),
          "expanded_attention: earlier chunks are in o_state and lse");
  if (arguments.num_sequences == 0 || arguments.max_new == 0) {
    return;
  }
  const auto start = [&](auto kernel, int64_t shared_bytes) {
    launch(stream,
           {.name = "expanded_attention",
            .grid = {static_cast<unsigned>((arguments.max_new + kPrefillRows - 1) / kPrefillRows),
                     static_cast<unsigned>(arguments.num_heads),
                     static_cast<unsigned>(arguments.num_sequences)},
            .block = {kPrefillThreads},
            .shared_bytes = shared_bytes},
           kernel,
           arguments);
  };
  const int qk = arguments.nope + arguments.rope;
  if (qk <= 64 && arguments.v <= 64) {
    start(expanded_attention_kernel<64, 64>, sizeof(ExpandedAttentionShared<64, 64>));
  } else if (qk <= 128 && arguments.v <= 64) {
    start(expanded_attention_kernel<128, 64>, sizeof(ExpandedAttentionShared<128, 64>));
  } else if (qk <= 192) {
    start(expanded_attention_kernel<192, 128>, sizeof(ExpandedAttentionShared<192, 128>));
  } else {
    start(expanded_attention_kernel<256, 128>, sizeof(ExpandedAttentionShared<256, 128>));
  }
}

}  // namespace gpu::DSV3_BACKEND
