// x W^T with the rows of W produced on demand: the plain form, which exact mode takes. FP32 products take panel_matmul.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"

namespace reference {

// y[m, n] = dot_in_order(x[m], w[n]). x is [num_rows, in]; weight_row(n, span<float> [in]) writes row n of W.
// Order: dot_in_order, whatever the number of threads or rows.
template <typename T, typename WeightRow>
std::vector<T> matmul(std::span<const T> x,
                      int64_t num_rows,
                      int64_t out_dim,
                      int64_t in_dim,
                      int num_threads,
                      const WeightRow& weight_row) {
  std::vector<T> y(static_cast<size_t>(num_rows * out_dim));
  parallel_for(out_dim, num_threads, [&](int64_t n) {
    std::vector<float> row(static_cast<size_t>(in_dim));
    weight_row(n, std::span<float>(row));
    const std::vector<T> w(row.begin(), row.end());
    for (int64_t m = 0; m < num_rows; ++m) {
      const auto x_row = x.subspan(static_cast<size_t>(m * in_dim), static_cast<size_t>(in_dim));
      y[static_cast<size_t>(m * out_dim + n)] = dot_in_order<T>(x_row, w);
    }
  });
  return y;
}

}  // namespace reference
