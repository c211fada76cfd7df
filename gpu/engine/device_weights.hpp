// The weights that a rank has of a model, as they lie on the device: pointers into it, in the layouts that the kernels read. Sizes below
// (heads, vocab, the intermediate dimensions, experts, layers) are the rank's own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "gpu/portable/types.hpp"

namespace gpu {

// y = x W^T, or the part of it that a rank has; `num_groups` matrices one behind the other. Either FP8 codes with scales of 128x128 blocks, or BF16.
struct LinearWeight {
  int64_t out_dim = 0;
  int64_t in_dim = 0;
  int num_groups = 1;
  int num_splits =
      1;  // parts of K that different blocks sum: by the shape of the whole matrix, whatever a rank has of it
  int num_parts = 1;          // parts of K that are added as a binary tree, of which ranks that share K have subtrees
  fp8_e4m3* codes = nullptr;  // [num_groups, out_dim, in_dim]
  float* scales = nullptr;    // [num_groups, ceil(out_dim / 128), ceil(in_dim / 128)]
  half16* values = nullptr;   // [num_groups, out_dim, in_dim]

  [[nodiscard]] bool is_fp8() const { return codes != nullptr; }
};

// down(silu(gate) * up). The intermediate dimension is padded with zero rows and columns to whole 128-blocks, so that gate and up are
// one matrix whose scale blocks do not straddle them: a zero changes no sum and no block's largest element.
struct MlpWeights {
  int64_t dim = 0;
  int64_t padded_dim = 0;
  LinearWeight gate_up;  // [2 * padded_dim, hidden]: gate, then up
  LinearWeight down;     // [hidden, padded_dim]
};

struct MoeWeights {
  LinearWeight router;    // BF16 [experts of all ranks, hidden]
  float* bias = nullptr;  // [experts of all ranks], or null
  MlpWeights experts;     // the rank's
  std::optional<MlpWeights> shared;
};

struct LayerWeights {
  half16* attn_norm = nullptr;      // [hidden]
  std::optional<LinearWeight> q_a;  // absent without q_lora
  half16* q_a_norm = nullptr;       // [q_lora]
  LinearWeight q;                   // q_b, or the one projection
  LinearWeight kv_a;                // [kv_lora + rope, hidden]
  half16* kv_a_norm = nullptr;      // [kv_lora]
  LinearWeight kv_b;                // [heads * (nope + v), kv_lora]: the expanded form
  half16* w_uk = nullptr;           // [heads, kv_lora, nope]: kv_b's key rows, dequantised and transposed
  half16* w_uv = nullptr;           // [heads, v, kv_lora]: kv_b's value rows, dequantised
  LinearWeight o_proj;              // [hidden, heads * v]
  half16* ffn_norm = nullptr;       // [hidden]
  std::optional<MoeWeights> moe;    // one of the two
  std::optional<MlpWeights> mlp;
};

struct MtpWeights {
  half16* embedding = nullptr;  // [vocab, hidden]; the main model's where the checkpoint has one for both
  half16* enorm = nullptr;      // [hidden]
  half16* hnorm = nullptr;      // [hidden]
  LinearWeight eh_proj;         // BF16 [hidden, 2 * hidden]
  LayerWeights layer;
  half16* norm = nullptr;  // [hidden]
  LinearWeight head;       // BF16 [vocab, hidden]
};

struct DeviceWeights {
  half16* embedding = nullptr;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  half16* final_norm = nullptr;  // [hidden]
  LinearWeight head;             // BF16 [vocab, hidden]
  std::vector<MtpWeights> mtp;
};

}  // namespace gpu
