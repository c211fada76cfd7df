// Products of rows of x with eight rows of weights. Included by kernel_bodies.hpp, inside the unnamed namespace of a level.

// Where a tile takes its weights from: numbers, or codes that are decoded on the way to the multiplication. `first` counts elements
// within the block; the weights are kFactor, a power of two, times what at() gives.
struct NumberRows {
  static constexpr float kFactor = 1;
  const float* panel;
  [[nodiscard]] Vec at(int64_t r, int64_t first) const { return load(panel + r * kPanelLen + first); }
};
struct WideRows {
  const Wide* panel;
  static constexpr float kFactor = kWideFactor;
  [[nodiscard]] Vec at(int64_t r, int64_t first) const { return load_wide(panel + r * kPanelLen + first); }
};
struct Bf16Rows {
  static constexpr float kFactor = 1;
  const uint16_t* codes;
  int64_t stride;
  [[nodiscard]] Vec at(int64_t r, int64_t first) const { return load_bf16(codes + r * stride + first); }
};

// Rows of weights that meet `num_tokens` rows of x at a time, so that their sums fit the registers.
constexpr int rows_at_a_time(int num_tokens) {
  return num_tokens >= 8 ? 1 : num_tokens * 8 <= kNumSums ? 8 : num_tokens * 4 <= kNumSums ? 4 : kNumSums / num_tokens;
}

// Lanes of kTokens x kRows outputs over one block, joined as far as whole registers go. joined: [kTokens][kPanelRows].
// A vector of lanes after the other, so that fewer of them are at work on more outputs: that asks for fewer loads.
template <int kTokens, int kRows, bool kFused, typename Rows>
inline void add_lanes(const float* x, const Rows& rows, int64_t first_row, int64_t num_steps, Joined* joined) {
  Vec kept[kTokens][kRows][kPacks];
#pragma GCC unroll 4
  for (int p = 0; p < kPacks; ++p) {
    Vec lanes[kTokens][kRows] = {};
    for (int64_t first = int64_t{p} * kVecLen; first < num_steps * 16; first += 16) {
      // The fewer of the two sides stay in registers and meet the others one by one.
      constexpr bool kKeepsWeights = kTokens > kRows;
      Vec kept_side[kKeepsWeights ? kRows : kTokens];
#pragma GCC unroll 8
      for (int i = 0; i < (kKeepsWeights ? kRows : kTokens); ++i) {
        kept_side[i] = kKeepsWeights ? rows.at(first_row + i, first) : load(x + i * kPanelLen + first);
        if constexpr (kFused && kRows < 8) {
          keep_in_register(kept_side[i]);
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < (kKeepsWeights ? kTokens : kRows); ++i) {
        const Vec other = kKeepsWeights ? load(x + i * kPanelLen + first) : rows.at(first_row + i, first);
#pragma GCC unroll 8
        for (int j = 0; j < (kKeepsWeights ? kRows : kTokens); ++j) {
          Vec& sum = kKeepsWeights ? lanes[i][j] : lanes[j][i];
          sum = kFused ? multiply_add_fused(sum, kept_side[j], other) : multiply_add(sum, kept_side[j], other);
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        kept[m][r][p] = lanes[m][r];
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kTokens; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      joined[m * kPanelRows + r] = join(kept[m][r]);
    }
  }
}

using Outputs = float __attribute__((vector_size(kPanelRows * sizeof(float))));

// totals of row m += the dots `sums` [kPanelRows] times `factor`, scaled as `b` says.
inline void add_scaled(const BlockProducts& b, int64_t m, float factor, const float* sums) {
  Outputs dots;
  Outputs totals;
  __builtin_memcpy(&dots, sums, sizeof(dots));
  __builtin_memcpy(&totals, b.totals + m * kPanelRows, sizeof(totals));
  dots *= factor;
  if (b.x_scales == nullptr) {
    totals += dots;
  } else {
    const float x_scale = b.x_scales[m];
    totals += b.scales_first ? dots * (x_scale * b.w_scale) : (dots * x_scale) * b.w_scale;
  }
  __builtin_memcpy(b.totals + m * kPanelRows, &totals, sizeof(totals));
}

template <int kTokens, bool kFused, typename Rows>
inline void add_tile(const BlockProducts& b, const Rows& rows, int64_t m) {
  constexpr int kRows = rows_at_a_time(kTokens);
  Joined joined[kTokens * kPanelRows];
  constexpr int kLastRows = kPanelRows % kRows;
  for (int r = 0; r + kRows <= kPanelRows; r += kRows) {
    add_lanes<kTokens, kRows, kFused>(b.x + m * kPanelLen, rows, r, b.num_steps, joined + r);
  }
  if constexpr (kLastRows > 0) {
    constexpr int kFirst = kPanelRows - kLastRows;
    add_lanes<kTokens, kLastRows, kFused>(b.x + m * kPanelLen, rows, kFirst, b.num_steps, joined + kFirst);
  }
  for (int i = 0; i < kTokens; ++i) {
    float sums[kPanelRows];
    finish(joined + i * kPanelRows, sums);
    add_scaled(b, m + i, Rows::kFactor, sums);
  }
}

// The rows of x from m on, of which there are at most kTokens.
template <int kTokens, bool kFused, typename Rows>
inline void add_last(const BlockProducts& b, const Rows& rows, int64_t m) {
  if constexpr (kTokens > 0) {
    if (b.num_rows - m == kTokens) {
      add_tile<kTokens, kFused>(b, rows, m);
    } else {
      add_last<kTokens - 1, kFused>(b, rows, m);
    }
  }
}

template <bool kFused>
void add_block_as(const BlockProducts& b) {
  const NumberRows rows{b.panel};
  int64_t m = 0;
  for (; m + kTileTokens <= b.num_rows; m += kTileTokens) {
    add_tile<kTileTokens, kFused>(b, rows, m);
  }
  add_last<kTileTokens - 1, kFused>(b, rows, m);
}

void add_block(const BlockProducts& b) {
  b.exact_products ? add_block_as<true>(b) : add_block_as<false>(b);
}

// A block of stored weights by way of a panel: where one of them is NaN, or has products that do not fit a float.
template <typename Decode>
[[gnu::noinline]] void add_decoded(const BlockProducts& b, const StoredPanel& stored, const Decode& decode) {
  alignas(64) float panel[kPanelRows * kPanelLen];
  BlockProducts decoded = b;
  decoded.panel = panel;
  decoded.exact_products = decode(stored, kPanelLen, panel) && b.exact_products;
  add_block(decoded);
}

// The codes are widened to numbers of 16 bits where the level has them: those are quickly loaded, and no subnormal number is
// multiplied. The products then are 2^-8 of what they should be, exactly.
template <int kTokens>
inline void add_stored(const BlockProducts& b, const StoredPanel& stored, const uint8_t* codes) {
  alignas(64) Wide panel[kPanelRows * kPanelLen];
  E4m3Range range;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    ask_for<uint8_t>(stored, r, kPanelLen);
    for (int64_t i = 0; i < kPanelLen; i += kNumBytes) {
      range.see(codes + r * stored.stride + i);
      widen_e4m3(codes + r * stored.stride + i, panel + r * kPanelLen + i);
    }
  }
  if (!range.has_nan()) {
    add_tile<kTokens, true>(b, WideRows{panel}, 0);
  } else {
    add_decoded(b, stored, [](const StoredPanel& from, int64_t len, float* numbers) {
      decode_e4m3_panel(from, len, numbers);
      return true;
    });
  }
}

template <int kTokens>
inline void add_stored(const BlockProducts& b, const StoredPanel& stored, const uint16_t* codes) {
  Bf16Range range;
  for (int64_t r = 0; r < kPanelRows; ++r) {
    ask_for<uint16_t>(stored, r, kPanelLen);
    for (int64_t i = 0; i < kPanelLen; i += kNumBytes / 2) {
      range.see(codes + r * stored.stride + i);
    }
  }
  if (range.has_exact_products() && b.exact_products) {
    add_tile<kTokens, true>(b, Bf16Rows{codes, stored.stride}, 0);
  } else {
    add_decoded(b, stored, decode_bf16_panel);
  }
}

template <int kTokens, typename Code>
void add_rows(const StoredProducts& p) {
  constexpr int64_t kNumAhead = 4;  // blocks: memory answers while they are multiplied
  const auto* codes = static_cast<const Code*>(p.codes);
  __builtin_memset(p.totals, 0, kTokens * kPanelRows * sizeof(float));
  for (int64_t block = 0; block < p.num_blocks; ++block) {
    const int64_t ahead = block + kNumAhead;
    const auto* rows_ahead = ahead < p.num_blocks ? codes : static_cast<const Code*>(p.next);
    add_stored<kTokens>({.x = p.x + block * kTokens * kPanelLen,
                         .num_rows = kTokens,
                         .num_steps = kPanelLen / 16,
                         .exact_products = p.exact_products,
                         .x_scales = p.x_scales != nullptr ? p.x_scales + block * kTokens : nullptr,
                         .w_scale = p.x_scales != nullptr ? p.w_scales[block] : 1,
                         .scales_first = p.scales_first,
                         .totals = p.totals},
                        {.codes = codes + block * kPanelLen,
                         .stride = p.stride,
                         .num_rows = kPanelRows,
                         .next = rows_ahead + (ahead < p.num_blocks ? ahead : ahead - p.num_blocks) * kPanelLen},
                        codes + block * kPanelLen);
  }
}

template <int kTokens, typename Code>
void add_rows_of(const StoredProducts& p) {
  if constexpr (kTokens > 0) {
    p.num_rows == kTokens ? add_rows<kTokens, Code>(p) : add_rows_of<kTokens - 1, Code>(p);
  }
}

void add_e4m3_rows(const StoredProducts& p) {
  add_rows_of<kFewTokens, uint8_t>(p);
}

void add_bf16_rows(const StoredProducts& p) {
  add_rows_of<kFewTokens, uint16_t>(p);
}
