// The inner loops of the reference as a table of functions, one table for each level. A level may choose registers and
// instructions, never the order of operations: docs/numerics.md, section 2. All arrays may be unaligned.
#pragma once

#include <cstdint>

#include "reference/simd/level.hpp"

namespace reference::simd {

inline constexpr int64_t kPanelRows = 8;   // weight rows that are multiplied together
inline constexpr int64_t kPanelLen = 128;  // one block of the written order

// Products of one block of K: `num_rows` rows of x with the kPanelRows rows of a panel. Both are zero beyond the end of the
// vectors in a ragged block.
struct BlockProducts {
  const float* x = nullptr;  // [num_rows, kPanelLen]
  int64_t num_rows = 0;
  const float* panel = nullptr;     // [kPanelRows, kPanelLen]
  int64_t num_steps = 0;            // groups of 16 elements that hold any: 1 to 8
  bool exact_products = false;      // every product fits a float, so that a fused multiply-add has the same bits
  const float* x_scales = nullptr;  // [num_rows], or null: no scales
  float w_scale = 1;                // of all rows of the panel
  bool scales_first = true;         // dot * (x_scale * w_scale), or (dot * x_scale) * w_scale
  float* totals = nullptr;          // [num_rows, kPanelRows]: the scaled dots are added to it
};

// Weights of a block as they are stored: E4M3 codes (bytes) or BF16 ones (two bytes), row r at codes + r * stride elements.
struct StoredPanel {
  const void* codes = nullptr;
  int64_t stride = 0;
  int64_t num_rows = 0;  // at most kPanelRows
  const void* next =
      nullptr;  // what is read some time later and asked for meanwhile: any address, with the same stride
};

// Up to this many rows of x the weights are decoded on the way to the multiplication, in place of a panel in memory.
inline constexpr int kFewTokens = 4;

// Products of few rows of x with kPanelRows rows of stored weights, over all whole blocks of K.
struct StoredProducts {
  const float* x = nullptr;  // [num_blocks, num_rows, kPanelLen]
  int64_t num_rows = 0;      // at most kFewTokens
  int64_t num_blocks = 0;
  bool exact_products = false;      // what is known of x; the weights are looked at here. E4M3: x are E4M3 numbers
  const void* codes = nullptr;      // as of a StoredPanel
  int64_t stride = 0;               // elements
  const void* next = nullptr;       // the rows that are read after these, asked for during the last blocks
  const float* x_scales = nullptr;  // [num_blocks, num_rows], or null: no scales
  const float* w_scales = nullptr;  // [num_blocks]
  bool scales_first = true;         // as of BlockProducts, like the next
  float* totals = nullptr;          // [num_rows, kPanelRows], written
};

// The product of two BF16 numbers has 16 bits. Between these two it neither overflows nor loses any of them, so that it fits a float
// and a fused multiply-add has the bits of a product and an addition. Beyond, kernels take the two steps.
inline constexpr float kSmallestExact = 0x1p-60f;
inline constexpr float kLargestExact = 0x1p60f;

struct Kernels {
  Level level;
  void (*add_block)(const BlockProducts& products);
  // add_block for each block, ascending, from totals of 0.
  void (*add_e4m3_rows)(const StoredProducts& products);
  void (*add_bf16_rows)(const StoredProducts& products);
  // out[r] = x . row r, in the order of dot_in_order. Row r: [len] at rows + r * stride.
  void (*dots)(const float* x, const float* rows, int64_t stride, int64_t num_rows, int64_t len, float* out);
  // out[j] = weights . column j of the rows, in the order of dot_in_order. out: [len]
  void (*weighted_rows)(
      const float* weights, int64_t num_rows, const float* rows, int64_t stride, int64_t len, float* out);
  // E4M3FN codes as numbers; 0x7F and 0xFF give the same NaN.
  void (*decode_e4m3)(const uint8_t* codes, int64_t len, float* out);
  // The first `len` columns of the rows into a panel [num_rows, kPanelLen]. The answer is that of decode_bf16.
  void (*decode_e4m3_panel)(const StoredPanel& weights, int64_t len, float* panel);
  bool (*decode_bf16_panel)(const StoredPanel& weights, int64_t len, float* panel);
  // BF16 codes as numbers. True if every one but 0 has a magnitude in [kSmallestExact, kLargestExact).
  bool (*decode_bf16)(const uint16_t* codes, int64_t len, float* out);
  // Rounded as encode_bf16 rounds.
  void (*encode_bf16)(const float* values, int64_t len, uint16_t* codes);
  // values = BF16(values * scale). The same answer as of decode_bf16.
  bool (*scale_to_bf16)(float* values, int64_t len, float scale);
  // BF16(code * scale) of the first `len` columns, row r to out + r * out_stride; any number of rows. The same answer.
  bool (*dequantize_e4m3)(const StoredPanel& weights, int64_t len, float scale, float* out, int64_t out_stride);
  // Whether every value is a BF16 number and 0 or in that range.
  bool (*is_bf16)(const float* values, int64_t len);
  // Largest magnitude; the first NaN if there is one.
  float (*largest_magnitude)(const float* x, int64_t len);
  // E4M3(x / divisor) and E4M3(x * factor), as numbers.
  void (*quotients_to_e4m3)(const float* x, int64_t len, float divisor, float* out);
  void (*products_to_e4m3)(const float* x, int64_t len, float factor, float* out);
  // Correctly rounded, as exp_f32 and silu_f32 are. `out` may be `x`.
  void (*exp)(const float* x, int64_t len, float* out);
  void (*silu)(const float* x, int64_t len, float* out);
};

// The table in use: of the highest supported level unless use_level() chose another.
[[nodiscard]] const Kernels& kernels();
[[nodiscard]] const Kernels& kernels_of(Level level);  // InputError if this machine or build does not have it
// For tests and for the option --simd: a choice for the whole process, not to be made while another thread computes. It is the one
// mutable global of the reference, and it cannot change a result.
void use_level(Level level);

}  // namespace reference::simd
