// Pages of the latent cache on their way to the absorbed attention: copied into one of two stages of shared memory and handed out as
// BF16 rows of kLatent columns, then kRope, zeros where the model's widths end earlier. Pages in FP8 become BF16 one at a time.
#pragma once

#include "gpu/kernels/fp8_cache.cuh"
#include "gpu/kernels/latent_splits.cuh"
#include "gpu/kernels/linear_tile.cuh"
#include "gpu/portable/kernel.hpp"

namespace gpu::DSV3_BACKEND {

inline constexpr int kAttentionThreads = 256;
inline constexpr int kAttentionStages = 2;

// A row as operands are loaded from it: 16-byte chunks, swizzled within each piece.
template <int kLatent, int kRope>
struct LatentRow {
  static constexpr int kPieces = ((kLatent + kRope) * 2 + kPieceBytes - 1) / kPieceBytes;
  static constexpr int kChunks = kPieces * kChunksPerPiece;
  unsigned char pieces[kPieces][kPieceBytes];
};

template <int kLatent, int kRope>
GPU_DEVICE void* chunk_of(LatentRow<kLatent, kRope>& row, int row_idx, int chunk) {
  return &row.pieces[chunk / kChunksPerPiece][swizzled(row_idx, chunk % kChunksPerPiece)];
}

template <int kLatent, int kRope>
struct LatentPagesBf16 {
  LatentRow<kLatent, kRope> keys[kAttentionStages][kPageLen];
};
template <int kLatent, int kRope>
struct LatentPagesFp8 {
  unsigned char stored[kAttentionStages][kPageLen][fp8_cache_row_bytes(kLatent, kRope)];
  LatentRow<kLatent, kRope> keys[kPageLen];
};

// Chunk `chunk` of a row whose parts begin at `latent` and `rope`; zeros where it is not inside.
template <int kLatent, int kRope>
GPU_DEVICE void copy_row_chunk(void* to,
                               int chunk,
                               const half16* latent,
                               const half16* rope,
                               const LatentAttentionArguments& arguments,
                               bool exists) {
  const int column = chunk * (kChunkBytes / 2);
  const bool is_latent = column < kLatent;
  const bool is_inside = exists && (is_latent ? column < arguments.kv_lora : column - kLatent < arguments.rope);
  const half16* const from = is_latent ? latent + column : rope + (column - kLatent);
  copy_async_16(to, is_inside ? from : arguments.q_latent, is_inside ? kChunkBytes : 0);
}

// Issues the copies of a page's first num_keys rows into a stage; the other rows become zeros.
template <int kLatent, int kRope>
GPU_DEVICE void copy_page(LatentPagesBf16<kLatent, kRope>& pages,
                          const LatentAttentionArguments& arguments,
                          int stage,
                          int64_t page,
                          int num_keys) {
  using Row = LatentRow<kLatent, kRope>;
  for (int i = static_cast<int>(thread_idx().x); i < kPageLen * Row::kChunks; i += kAttentionThreads) {
    const int key = i / Row::kChunks;
    const int chunk = i % Row::kChunks;
    const half16* const row = arguments.cache + (page * kPageLen + key) * (arguments.kv_lora + arguments.rope);
    copy_row_chunk<kLatent, kRope>(
        chunk_of(pages.keys[stage][key], key, chunk), chunk, row, row + arguments.kv_lora, arguments, key < num_keys);
  }
}
template <int kLatent, int kRope>
GPU_DEVICE void copy_page(LatentPagesFp8<kLatent, kRope>& pages,
                          const LatentAttentionArguments& arguments,
                          int stage,
                          int64_t page,
                          int num_keys) {
  const int row_bytes = fp8_cache_row_bytes(arguments.kv_lora, arguments.rope);
  const int chunks = row_bytes / kChunkBytes;
  for (int i = static_cast<int>(thread_idx().x); i < kPageLen * chunks; i += kAttentionThreads) {
    const int key = i / chunks;
    const int byte = i % chunks * kChunkBytes;
    const bool exists = key < num_keys;
    copy_async_16(&pages.stored[stage][key][byte],
                  exists ? arguments.cache_fp8 + (page * kPageLen + key) * row_bytes + byte : arguments.cache_fp8,
                  exists ? kChunkBytes : 0);
  }
}

// The rows of a stage whose copies have come. All threads of the block call, behind a barrier that all of them have passed since
// they last read rows.
template <int kLatent, int kRope>
GPU_DEVICE const LatentRow<kLatent, kRope> (&keys_of(LatentPagesBf16<kLatent, kRope>& pages,
                                                     const LatentAttentionArguments& /*arguments*/,
                                                     int stage))[kPageLen] {
  return pages.keys[stage];
}
template <int kLatent, int kRope>
GPU_DEVICE const LatentRow<kLatent, kRope> (&keys_of(LatentPagesFp8<kLatent, kRope>& pages,
                                                     const LatentAttentionArguments& arguments,
                                                     int stage))[kPageLen] {
  using Row = LatentRow<kLatent, kRope>;
  for (int i = static_cast<int>(thread_idx().x); i < kPageLen * Row::kChunks; i += kAttentionThreads) {
    const int key = i / Row::kChunks;
    const int chunk = i % Row::kChunks;
    const int column = chunk * kVectorLen;
    const unsigned char* const stored = pages.stored[stage][key];
    const auto* const rope = reinterpret_cast<const half16*>(stored + arguments.kv_lora + kFp8CacheScaleBytes);
    Vector<half16, kVectorLen> values{};
    if (column < arguments.kv_lora) {
      values = load_fp8_latent(stored, column, arguments.kv_lora);
    } else if (column >= kLatent && column - kLatent < arguments.rope) {
      values = load_vector<kVectorLen>(rope + (column - kLatent));
    }
    store_vector<kVectorLen>(static_cast<half16*>(chunk_of(pages.keys[key], key, chunk)), values);
  }
  sync_threads();
  return pages.keys;
}

}  // namespace gpu::DSV3_BACKEND
