#include "reference/any_order.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {
namespace {

using simd::kPanelLen;
using simd::kPanelRows;

constexpr int kLanes = 8;
constexpr int64_t kChunkRows = 4 * kPanelRows;  // few enough that their lanes for many rows of x stay near

// lanes += x_scale * w_scale * (one block of some rows of x, panel), element k in lane k mod 8.
struct BlockOfRows {
  const float* x = nullptr;  // [num_rows, 128]
  int64_t num_rows = 0;
  const float* panel = nullptr;     // [8, 128]
  const float* x_scales = nullptr;  // [num_rows], or null: every scale is 1
  float w_scale = 1;
  float* lanes = nullptr;  // [num_rows, 8, kLanes]

  [[nodiscard]] float scale(int64_t m) const { return x_scales == nullptr ? 1.0f : x_scales[m] * w_scale; }
};

using AddBlock = void (*)(const BlockOfRows& block);

void add_portable(const BlockOfRows& block) {
  for (int64_t m = 0; m < block.num_rows; ++m) {
    for (int r = 0; r < kPanelRows; ++r) {
      std::array<float, kLanes> sums{};
      for (int k = 0; k < kPanelLen; ++k) {
        sums[static_cast<size_t>(k % kLanes)] += block.x[m * kPanelLen + k] * block.panel[r * kPanelLen + k];
      }
      float* lanes = block.lanes + (m * kPanelRows + r) * kLanes;
      for (const float sum : sums) {
        *lanes++ += block.scale(m) * sum;
      }
    }
  }
}

#if defined(__x86_64__)
// NOTE: with vectors of 64 bytes and 24 sums the same loop is slower where the first cache gives one of them a cycle (Ice Lake: 24 GMAC/s
// against 29, 32 tokens).
constexpr int kTokens = 3;  // rows of x at a time: their 12 sums hide the latency of a multiply-add

template <int kNumTokens>
__attribute__((target("avx2,fma"))) void add_tokens_avx2(const BlockOfRows& block, int64_t m) {
  constexpr int kRows = 4;
  for (int first = 0; first < kPanelRows; first += kRows) {
    __m256 sums[kNumTokens][kRows];
#pragma GCC unroll 4
    for (int t = 0; t < kNumTokens; ++t) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sums[t][r] = _mm256_setzero_ps();
      }
    }
    for (int k = 0; k < kPanelLen; k += kLanes) {
      __m256 x[kNumTokens];
#pragma GCC unroll 4
      for (int t = 0; t < kNumTokens; ++t) {
        x[t] = _mm256_loadu_ps(block.x + (m + t) * kPanelLen + k);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256 w = _mm256_loadu_ps(block.panel + (first + r) * kPanelLen + k);
#pragma GCC unroll 4
        for (int t = 0; t < kNumTokens; ++t) {
          sums[t][r] = _mm256_fmadd_ps(x[t], w, sums[t][r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kNumTokens; ++t) {
      const __m256 scale = _mm256_set1_ps(block.scale(m + t));
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        float* lanes = block.lanes + ((m + t) * kPanelRows + first + r) * kLanes;
        _mm256_storeu_ps(lanes, _mm256_fmadd_ps(scale, sums[t][r], _mm256_loadu_ps(lanes)));
      }
    }
  }
}

void add_avx2(const BlockOfRows& block) {
  int64_t m = 0;
  for (; m + kTokens <= block.num_rows; m += kTokens) {
    add_tokens_avx2<kTokens>(block, m);
  }
  for (; m < block.num_rows; ++m) {
    add_tokens_avx2<1>(block, m);
  }
}

#endif

AddBlock add_block_of([[maybe_unused]] simd::Level level) {
#if defined(__x86_64__)
  if (level != simd::Level::kBaseline) {
    return add_avx2;
  }
#endif
  return add_portable;
}

// The sum of the lanes, halves joined again and again.
float joined(std::span<float> lanes) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) {
      lanes[i] += lanes[i + half];
    }
  }
  return lanes[0];
}

}  // namespace

std::vector<float> any_order_matmul(const BlockedRows& x,
                                    const WeightMatrix& weight,
                                    WeightForm form,
                                    int num_threads) {
  CHECK_EQ(x.len(), weight.in_dim());
  constexpr int64_t kRowLanes = kPanelRows * kLanes;  // of one row of x and one panel
  const AddBlock add_block = add_block_of(simd::kernels().level);
  const int64_t out_dim = weight.out_dim();
  std::vector<float> y(static_cast<size_t>(x.num_rows() * out_dim));
  parallel_for((out_dim + kChunkRows - 1) / kChunkRows, num_threads, [&](int64_t chunk) {
    const int64_t first = chunk * kChunkRows;
    const int64_t last = std::min(first + kChunkRows, out_dim);
    const int64_t num_panels = (last - first + kPanelRows - 1) / kPanelRows;
    std::vector<float> lanes(static_cast<size_t>(num_panels * x.num_rows() * kRowLanes));
    const auto panel = std::make_unique<Panel>();
    for (int64_t b = 0; b < x.num_blocks(); ++b) {
      const int64_t len = std::min<int64_t>(kBlockLen, x.len() - b * kBlockLen);
      for (int64_t p = 0; p < num_panels; ++p) {
        const int64_t first_row = first + p * kPanelRows;
        const int64_t panel_rows = std::min(kPanelRows, out_dim - first_row);
        if (len < kBlockLen || panel_rows < kPanelRows) {
          *panel = {};
        }
        const PanelPlace place{.first_row = first_row, .num_rows = panel_rows, .block = b, .len = len};
        PanelPlace next = place;
        next.first_row += kPanelRows;
        weight.read_panel(form, place, next, panel->values.data());
        add_block({.x = x.block(b),
                   .num_rows = x.num_rows(),
                   .panel = panel->values.data(),
                   .x_scales = x.scales(b),
                   .w_scale = x.scales(b) == nullptr ? 1.0f : weight.scale(first_row, b),
                   .lanes = lanes.data() + p * x.num_rows() * kRowLanes});
      }
    }
    for (int64_t n = first; n < last; ++n) {
      const int64_t p = (n - first) / kPanelRows;
      for (int64_t m = 0; m < x.num_rows(); ++m) {
        const int64_t place = (p * x.num_rows() + m) * kRowLanes + (n - first) % kPanelRows * kLanes;
        y[static_cast<size_t>(m * out_dim + n)] = joined(std::span(lanes).subspan(static_cast<size_t>(place), kLanes));
      }
    }
  });
  return y;
}

}  // namespace reference
