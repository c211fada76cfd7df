#include "reference/any_order.hpp"

#include <algorithm>
#include <array>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"

namespace reference {
namespace {

using simd::kPanelLen;
using simd::kPanelRows;

constexpr int kLanes = 8;
constexpr int64_t kChunkRows = 4 * kPanelRows;  // few enough that their lanes for many rows of x stay near

// Running sums of one row of x with the rows of a panel.
struct Lanes {
  alignas(32) std::array<std::array<float, kLanes>, kPanelRows> of{};
};

// lanes += scale * (one block of x, panel), element k in lane k mod 8.
struct BlockOfRow {
  const float* x;      // [128]
  const float* panel;  // [8, 128]
  float scale;
  Lanes* lanes;
};

void add_portable(const BlockOfRow& block) {
  for (int r = 0; r < kPanelRows; ++r) {
    std::array<float, kLanes> sums{};
    for (int k = 0; k < kPanelLen; ++k) {
      sums[static_cast<size_t>(k % kLanes)] += block.x[k] * block.panel[r * kPanelLen + k];
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      block.lanes->of[static_cast<size_t>(r)][lane] += block.scale * sums[lane];
    }
  }
}

#if defined(__x86_64__)
// Eight sums at once hide the latency of a multiply-add.
__attribute__((target("avx2,fma"))) void add_avx2(const BlockOfRow& block) {
  __m256 sums[kPanelRows];
  for (auto& sum : sums) {
    sum = _mm256_setzero_ps();
  }
  for (int k = 0; k < kPanelLen; k += kLanes) {
    const __m256 x = _mm256_loadu_ps(block.x + k);
    for (int r = 0; r < kPanelRows; ++r) {
      sums[r] = _mm256_fmadd_ps(x, _mm256_loadu_ps(block.panel + r * kPanelLen + k), sums[r]);
    }
  }
  const __m256 scale = _mm256_set1_ps(block.scale);
  for (int r = 0; r < kPanelRows; ++r) {
    float* lanes = block.lanes->of[static_cast<size_t>(r)].data();
    _mm256_store_ps(lanes, _mm256_fmadd_ps(scale, sums[r], _mm256_load_ps(lanes)));
  }
}
#endif

auto adder() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return add_avx2;
  }
#endif
  return add_portable;
}

float joined(const std::array<float, kLanes>& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

}  // namespace

std::vector<float> any_order_matmul(const BlockedRows& x,
                                    const WeightMatrix& weight,
                                    WeightForm form,
                                    int num_threads) {
  CHECK_EQ(x.len(), weight.in_dim());
  const auto add = adder();
  const int64_t out_dim = weight.out_dim();
  std::vector<float> y(static_cast<size_t>(x.num_rows() * out_dim));
  parallel_for((out_dim + kChunkRows - 1) / kChunkRows, num_threads, [&](int64_t chunk) {
    const int64_t first = chunk * kChunkRows;
    const int64_t last = std::min(first + kChunkRows, out_dim);
    const int64_t num_panels = (last - first + kPanelRows - 1) / kPanelRows;
    std::vector<Lanes> lanes(static_cast<size_t>(num_panels * x.num_rows()));
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
        const float w_scale = x.scales(b) == nullptr ? 1.0f : weight.scale(first_row, b);
        for (int64_t m = 0; m < x.num_rows(); ++m) {
          add({.x = x.block(b) + m * kBlockLen,
               .panel = panel->values.data(),
               .scale = x.scales(b) == nullptr ? 1.0f : x.scales(b)[m] * w_scale,
               .lanes = &lanes[static_cast<size_t>(p * x.num_rows() + m)]});
        }
      }
    }
    for (int64_t n = first; n < last; ++n) {
      const int64_t p = (n - first) / kPanelRows;
      for (int64_t m = 0; m < x.num_rows(); ++m) {
        const Lanes& sums = lanes[static_cast<size_t>(p * x.num_rows() + m)];
        y[static_cast<size_t>(m * out_dim + n)] = joined(sums.of[static_cast<size_t>((n - first) % kPanelRows)]);
      }
    }
  });
  return y;
}

}  // namespace reference
