// A weighted sum of rows: what attention does with values. All columns at once, so that rows are read as they lie in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "reference/numerics/reduce.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {

// out[j] = dot_in_order(weights, column j), bit for bit: the same products, lanes, tree and blocks (reduce.hpp).
// Row i starts at rows + i * stride and has out.size() elements that are read; there are weights.size() rows.
template <typename T>
void weighted_rows(std::span<const T> weights, const T* rows, int64_t stride, std::span<T> out) {
  const auto num_rows = static_cast<int64_t>(weights.size());
  const auto len = static_cast<int64_t>(out.size());
  if constexpr (std::is_same_v<T, float>) {
    simd::kernels().weighted_rows(weights.data(), num_rows, rows, stride, len, out.data());
    return;
  }
  std::vector<T> lanes(static_cast<size_t>(kNumLanes * len));
  std::ranges::fill(out, T(0));
  for (int64_t begin = 0; begin < num_rows; begin += kBlockLen) {
    std::ranges::fill(lanes, T(0));
    const int64_t end = std::min<int64_t>(begin + kBlockLen, num_rows);
    for (int64_t i = begin; i < end; ++i) {
      const T weight = weights[static_cast<size_t>(i)];
      const T* row = rows + i * stride;
      T* lane = lanes.data() + (i - begin) % kNumLanes * len;
      for (int64_t j = 0; j < len; ++j) {
        lane[j] += weight * row[j];
      }
    }
    for (int64_t distance = kNumLanes / 2; distance > 0; distance /= 2) {
      for (int64_t k = 0; k < distance * len; ++k) {
        lanes[static_cast<size_t>(k)] += lanes[static_cast<size_t>(k + distance * len)];
      }
    }
    for (int64_t j = 0; j < len; ++j) {
      out[static_cast<size_t>(j)] += lanes[static_cast<size_t>(j)];
    }
  }
}

}  // namespace reference
