// x W^T in FP32 for many rows of x at once: eight weight rows are decoded block by block and meet every row of x while they are in
// the cache. What each output is, reduce.hpp says; this decides only who reads what when.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reference/reused.hpp"
#include "reference/rules.hpp"
#include "reference/simd/kernels.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

// Rows of x, cut into the blocks of the written order so that the rows of one block are neighbours.
class BlockedRows {
 public:
  BlockedRows(int64_t num_rows, int64_t len);

  // Row m as it is, or quantised. row: [len]
  void set(int64_t m, std::span<const float> row);
  void set_quantised(int64_t m, std::span<const float> row, const QuantizeRule& rule);

  [[nodiscard]] int64_t num_rows() const { return num_rows_; }
  [[nodiscard]] int64_t len() const { return len_; }
  [[nodiscard]] int64_t num_blocks() const { return num_blocks_; }
  [[nodiscard]] const float* block(int64_t b) const;   // [num_rows, 128], zero beyond len
  [[nodiscard]] const float* scales(int64_t b) const;  // [num_rows], null if the rows are not quantised
  [[nodiscard]] bool has_exact_products() const { return has_exact_products_; }

 private:
  [[nodiscard]] int64_t block_len(int64_t b) const;
  float* place(int64_t b, int64_t m);

  int64_t num_rows_;
  int64_t len_;
  int64_t num_blocks_;
  bool has_exact_products_ = true;
  Reused<float> values_;  // [num_blocks, num_rows, 128]
  Reused<float> scales_;  // [num_blocks, num_rows]
};

// Eight rows of one block of a weight, zero where the matrix has none.
struct Panel {
  alignas(64) std::array<float, simd::kPanelRows * simd::kPanelLen> values;  // [8, 128]
  float scale = 1;                                                           // of its codes
  bool has_exact_products = false;                                           // as WeightMatrix::read says
};
// Fills the place of a Panel whose values are zero wherever it is not whole. `next` will be asked for some time later, and may lie beyond the matrix.
using ReadPanel = std::function<void(const PanelPlace& place, const PanelPlace& next, Panel& panel)>;

// y[m * y_stride + n] = x[m] . w[n] in the written order, n in [0, out_dim). Quantised rows: each block's dot times its two scales.
// Whoever calls often hands over std::cref of a lambda, so that no memory is taken for it.
void panel_product(const BlockedRows& x,
                   int64_t out_dim,
                   const ReadPanel& read,
                   ScaleAssociation association,
                   int num_threads,
                   float* y,
                   int64_t y_stride);

// y[m, n] = x[m] . w[n] in the written order: quantised rows meet the codes of an FP8 weight, and each block's dot its two scales
// (`association`); other rows meet the weight in `form`. Checks x.len() == weight.in_dim(). y: [rows, out].
void panel_matmul(const BlockedRows& x,
                  const WeightMatrix& weight,
                  WeightForm form,
                  ScaleAssociation association,
                  int num_threads,
                  std::span<float> y);

// Some rows of a weight. Where codes are read, the first is a multiple of 8: a panel then lies in one block of scales.
struct WeightRows {
  int64_t first = 0;
  int64_t count = 0;
};
// The same for these rows alone: y[m * y_stride + n] = x[m] . w[first + n].
void panel_matmul(const BlockedRows& x,
                  const WeightMatrix& weight,
                  WeightRows rows,
                  WeightForm form,
                  ScaleAssociation association,
                  int num_threads,
                  float* y,
                  int64_t y_stride);

}  // namespace reference
