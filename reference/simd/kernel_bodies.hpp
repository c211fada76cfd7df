// The kernels of one level, written over its vectors. Included once by the file of each level, inside its unnamed namespace, behind
// Vec, Joined, the tile sizes, load(), store(), multiply_add(), multiply_add_fused(), join(), finish() and decode_sixteen_e4m3().
// Loops over single elements are plain: the compiler makes vectors of them, and no order is left to it.

constexpr int kPacks = 16 / kVecLen;
constexpr uint32_t kMagnitude = 0x7FFFFFFF;
constexpr uint32_t kInfinity = 0x7F800000;

inline uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
inline float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// Lanes of kTokens x kRows outputs over one block, joined as far as whole registers go. joined: [kTokens][kPanelRows].
template <int kTokens, int kRows, bool kFused>
inline void add_lanes(const float* x, const float* panel, int64_t num_steps, Joined* joined) {
  Vec lanes[kTokens][kRows][kPacks] = {};
  for (int64_t step = 0; step < num_steps; ++step) {
#pragma GCC unroll 4
    for (int p = 0; p < kPacks; ++p) {
      const int64_t offset = step * 16 + p * kVecLen;
      Vec w[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        w[r] = load(panel + r * kPanelLen + offset);
      }
#pragma GCC unroll 8
      for (int m = 0; m < kTokens; ++m) {
        const Vec row = load(x + m * kPanelLen + offset);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          lanes[m][r][p] =
              kFused ? multiply_add_fused(lanes[m][r][p], row, w[r]) : multiply_add(lanes[m][r][p], row, w[r]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      joined[m * kPanelRows + r] = join(lanes[m][r]);
    }
  }
}

inline void add_scaled(const BlockProducts& b, int64_t m, const float* sums) {
  float* totals = b.totals + m * kPanelRows;
  if (b.x_scales == nullptr) {
    for (int r = 0; r < kPanelRows; ++r) {
      totals[r] += sums[r];
    }
    return;
  }
  const float x_scale = b.x_scales[m];
  if (b.scales_first) {
    for (int r = 0; r < kPanelRows; ++r) {
      totals[r] += sums[r] * (x_scale * b.w_scales[r]);
    }
  } else {
    for (int r = 0; r < kPanelRows; ++r) {
      totals[r] += (sums[r] * x_scale) * b.w_scales[r];
    }
  }
}

template <int kTokens, int kRows, bool kFused>
inline void add_tile(const BlockProducts& b, int64_t m) {
  Joined joined[kTokens * kPanelRows];
  for (int r = 0; r < kPanelRows; r += kRows) {
    add_lanes<kTokens, kRows, kFused>(b.x + m * kPanelLen, b.panel + r * kPanelLen, b.num_steps, joined + r);
  }
  for (int i = 0; i < kTokens; ++i) {
    float sums[kPanelRows];
    finish(joined + i * kPanelRows, sums);
    add_scaled(b, m + i, sums);
  }
}

template <bool kFused>
void add_block_as(const BlockProducts& b) {
  int64_t m = 0;
  for (; m + kTileTokens <= b.num_rows; m += kTileTokens) {
    add_tile<kTileTokens, kTileRows, kFused>(b, m);
  }
  for (; m < b.num_rows; ++m) {
    add_tile<1, kSingleTokenRows, kFused>(b, m);
  }
}

void add_block(const BlockProducts& b) {
  b.exact_products ? add_block_as<true>(b) : add_block_as<false>(b);
}

// Dots of one vector with eight rows a time, each as dot_in_order() takes it.
void dots(const float* x, const float* rows, int64_t stride, int64_t num_rows, int64_t len, float* out) {
  for (int64_t first = 0; first < num_rows; first += kPanelRows) {
    const int64_t count = num_rows - first < kPanelRows ? num_rows - first : kPanelRows;
    float totals[kPanelRows] = {};
    for (int64_t begin = 0; begin < len; begin += kPanelLen) {
      const int64_t block_len = len - begin < kPanelLen ? len - begin : kPanelLen;
      const int64_t whole_len = block_len - block_len % 16;
      Joined joined[kPanelRows] = {};
      for (int64_t r = 0; r < count; ++r) {
        const float* row = rows + (first + r) * stride + begin;
        Vec lanes[kPacks] = {};
        for (int64_t k = 0; k < whole_len; k += 16) {
          for (int p = 0; p < kPacks; ++p) {
            lanes[p] = multiply_add(lanes[p], load(x + begin + k + p * kVecLen), load(row + k + p * kVecLen));
          }
        }
        if (whole_len < block_len) {
          float last_x[16] = {};
          float last_row[16] = {};
          const auto bytes = static_cast<size_t>(block_len - whole_len) * sizeof(float);
          __builtin_memcpy(last_x, x + begin + whole_len, bytes);
          __builtin_memcpy(last_row, row + whole_len, bytes);
          for (int p = 0; p < kPacks; ++p) {
            lanes[p] = multiply_add(lanes[p], load(last_x + p * kVecLen), load(last_row + p * kVecLen));
          }
        }
        joined[r] = join(lanes);
      }
      float sums[kPanelRows];
      finish(joined, sums);
      for (int r = 0; r < kPanelRows; ++r) {
        totals[r] += sums[r];
      }
    }
    __builtin_memcpy(out + first, totals, static_cast<size_t>(count) * sizeof(float));
  }
}

// out[j] += one block's dot of `weights` with column j, for kColumns columns: every lane stays in registers while its rows are added.
template <int kColumns>
inline void add_weighted_columns(
    const float* weights, int64_t num_rows, const float* rows, int64_t stride, float* out) {
  float lanes[16][kColumns];
  for (int64_t lane = 0; lane < 16; ++lane) {
    float sums[kColumns] = {};
    for (int64_t i = lane; i < num_rows; i += 16) {
      for (int j = 0; j < kColumns; ++j) {
        sums[j] += weights[i] * rows[i * stride + j];
      }
    }
    __builtin_memcpy(lanes[lane], sums, sizeof(sums));
  }
  for (int distance = 8; distance > 0; distance /= 2) {
    for (int lane = 0; lane < distance; ++lane) {
      for (int j = 0; j < kColumns; ++j) {
        lanes[lane][j] += lanes[lane + distance][j];
      }
    }
  }
  for (int j = 0; j < kColumns; ++j) {
    out[j] += lanes[0][j];
  }
}

void weighted_rows(const float* weights, int64_t num_rows, const float* rows, int64_t stride, int64_t len, float* out) {
  constexpr int kColumns = 4 * kVecLen;
  __builtin_memset(out, 0, static_cast<size_t>(len) * sizeof(float));
  for (int64_t begin = 0; begin < num_rows; begin += kPanelLen) {
    const int64_t count = num_rows - begin < kPanelLen ? num_rows - begin : kPanelLen;
    const float* block = rows + begin * stride;
    int64_t j = 0;
    for (; j + kColumns <= len; j += kColumns) {
      add_weighted_columns<kColumns>(weights + begin, count, block + j, stride, out + j);
    }
    for (; j < len; ++j) {
      add_weighted_columns<1>(weights + begin, count, block + j, stride, out + j);
    }
  }
}

constexpr int kNumMaxima = 32;

// `largest` collects the magnitudes seen, in lanes: the NaN code looks like 480 to the shifts of decode_sixteen_e4m3().
inline void decode_e4m3_row(const uint8_t* codes, int64_t len, float* out, uint8_t (&largest)[kNumMaxima]) {
  const int64_t whole_len = len - len % kNumMaxima;
  for (int64_t i = 0; i < whole_len; i += kNumMaxima) {
    decode_sixteen_e4m3(codes + i, out + i);
    decode_sixteen_e4m3(codes + i + 16, out + i + 16);
    for (int j = 0; j < kNumMaxima; ++j) {
      const auto magnitude = static_cast<uint8_t>(codes[i + j] & 0x7F);
      largest[j] = magnitude > largest[j] ? magnitude : largest[j];
    }
  }
  if (whole_len < len) {
    uint8_t last_codes[kNumMaxima] = {};
    float last[kNumMaxima];
    __builtin_memcpy(last_codes, codes + whole_len, static_cast<size_t>(len - whole_len));
    decode_sixteen_e4m3(last_codes, last);
    decode_sixteen_e4m3(last_codes + 16, last + 16);
    __builtin_memcpy(out + whole_len, last, static_cast<size_t>(len - whole_len) * sizeof(float));
    for (int j = 0; j < kNumMaxima; ++j) {
      const auto magnitude = static_cast<uint8_t>(last_codes[j] & 0x7F);
      largest[j] = magnitude > largest[j] ? magnitude : largest[j];
    }
  }
}

inline bool has_nan_code(const uint8_t (&largest)[kNumMaxima]) {
  uint8_t most = 0;
  for (int j = 0; j < kNumMaxima; ++j) {
    most = largest[j] > most ? largest[j] : most;
  }
  return most == 0x7F;
}

inline void put_nan(const uint8_t* codes, int64_t len, float* out) {
  for (int64_t i = 0; i < len; ++i) {
    out[i] = (codes[i] & 0x7F) == 0x7F ? __builtin_nanf("") : out[i];
  }
}

void decode_e4m3(const uint8_t* codes, int64_t len, float* out) {
  uint8_t largest[kNumMaxima] = {};
  decode_e4m3_row(codes, len, out, largest);
  if (has_nan_code(largest)) {
    put_nan(codes, len, out);
  }
}

// Asks for the codes of a panel to come: of the next rows where rows are short, else further along the same rows.
inline void ask_for(const void* codes, int64_t stride_bytes, int64_t num_rows, int64_t len_bytes) {
  const char* next =
      static_cast<const char*>(codes) + (stride_bytes <= 2 * len_bytes ? num_rows * stride_bytes : 4 * len_bytes);
  for (int64_t line = 0; line < len_bytes; line += 64) {
    __builtin_prefetch(next + line);
  }
}

void decode_e4m3_panel(const uint8_t* codes, int64_t stride, int64_t num_rows, int64_t len, float* panel) {
  uint8_t largest[kNumMaxima] = {};
  for (int64_t r = 0; r < num_rows; ++r) {
    ask_for(codes + r * stride, stride, num_rows, len);
    decode_e4m3_row(codes + r * stride, len, panel + r * kPanelLen, largest);
  }
  for (int64_t r = 0; r < num_rows && has_nan_code(largest); ++r) {
    put_nan(codes + r * stride, len, panel + r * kPanelLen);
  }
}

// 1 where products with a like number might not fit a float.
inline uint32_t is_extreme(uint32_t magnitude) {
  constexpr uint32_t kSmallest = __builtin_bit_cast(uint32_t, kSmallestExact);
  constexpr uint32_t kLargest = __builtin_bit_cast(uint32_t, kLargestExact);
  return static_cast<uint32_t>(magnitude != 0) & static_cast<uint32_t>(magnitude - kSmallest >= kLargest - kSmallest);
}

// Not 0 if there is a number that is_extreme(), which the upper half alone tells.
inline uint16_t decode_bf16_row(const uint16_t* codes, int64_t len, float* out) {
  constexpr auto kSmallest = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, kSmallestExact) >> 16);
  constexpr auto kLargest = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, kLargestExact) >> 16);
  for (int64_t i = 0; i < len; ++i) {
    out[i] = float_of(static_cast<uint32_t>(codes[i]) << 16);
  }
  uint16_t extreme = 0;
  for (int64_t i = 0; i < len; ++i) {
    const auto magnitude = static_cast<uint16_t>(codes[i] & 0x7FFF);
    const auto above = static_cast<uint16_t>(magnitude - kSmallest);
    extreme = static_cast<uint16_t>(extreme | ((magnitude != 0) & (above >= kLargest - kSmallest)));
  }
  return extreme;
}

bool decode_bf16(const uint16_t* codes, int64_t len, float* out) {
  return decode_bf16_row(codes, len, out) == 0;
}

bool decode_bf16_panel(const uint16_t* codes, int64_t stride, int64_t num_rows, int64_t len, float* panel) {
  uint16_t extreme = 0;
  for (int64_t r = 0; r < num_rows; ++r) {
    ask_for(codes + r * stride, 2 * stride, num_rows, 2 * len);
    extreme = static_cast<uint16_t>(extreme | decode_bf16_row(codes + r * stride, len, panel + r * kPanelLen));
  }
  return extreme == 0;
}

#include "reference/simd/element_bodies.hpp"

constexpr Kernels table_of(Level level) {
  return {.level = level,
          .add_block = add_block,
          .dots = dots,
          .weighted_rows = weighted_rows,
          .decode_e4m3 = decode_e4m3,
          .decode_e4m3_panel = decode_e4m3_panel,
          .decode_bf16_panel = decode_bf16_panel,
          .decode_bf16 = decode_bf16,
          .encode_bf16 = encode_bf16,
          .scale_to_bf16 = scale_to_bf16,
          .is_bf16 = is_bf16,
          .largest_magnitude = largest_magnitude,
          .quotients_to_e4m3 = quotients_to_e4m3,
          .products_to_e4m3 = products_to_e4m3,
          .exp = exponentials,
          .silu = silus};
}
