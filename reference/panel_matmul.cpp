#include "reference/panel_matmul.hpp"

#include <algorithm>

#include "reference/numerics/reduce.hpp"
#include "reference/parallel.hpp"
#include "reference/quantize.hpp"

namespace reference {
namespace {

using simd::kPanelLen;
using simd::kPanelRows;
static_assert(kPanelLen == kBlockLen && kBlockLen % kPanelRows == 0);

// Weight rows that a thread takes at a time for many rows of x: enough panels that a block of x, once in the first cache, serves all
// of them, while their sums fit the second one; and that every thread has some.
int64_t rows_of_chunk(int64_t num_rows, int64_t out_dim, int num_threads) {
  constexpr int64_t kNumSums = 32768;
  constexpr int64_t kChunksOfThread = 4;
  const int64_t fitting = std::clamp<int64_t>(kNumSums / num_rows, 8 * kPanelRows, 32 * kPanelRows);
  const int64_t share = num_threads == 1 ? out_dim : out_dim / (kChunksOfThread * num_threads);
  return std::max(std::min(fitting, share) / kPanelRows * kPanelRows, kPanelRows);
}

// A whole product: what is the same for all of its panels.
struct Product {
  const BlockedRows& x;
  int64_t out_dim;
  const ReadPanel& read;
  ScaleAssociation association;
  int num_threads;
  float* y;
  int64_t y_stride;

  [[nodiscard]] bool scales_first() const { return association == ScaleAssociation::kScalesFirst; }

  [[nodiscard]] PanelPlace place(int64_t first_row, int64_t block) const {
    return {.first_row = first_row,
            .num_rows = std::min(kPanelRows, out_dim - first_row),
            .block = block,
            .len = std::min<int64_t>(kBlockLen, x.len() - block * kBlockLen)};
  }

  // totals [num_rows, 8] += the products of a place.
  void add(const PanelPlace& place, const PanelPlace& next, float* totals) const {
    Panel panel;  // written whole by every read() but the ragged ones
    if (!place.is_whole()) {
      panel.values = {};
    }
    read(place, next, panel);
    simd::kernels().add_block({.x = x.block(place.block),
                               .num_rows = x.num_rows(),
                               .panel = panel.values.data(),
                               .num_steps = (place.len + kNumLanes - 1) / kNumLanes,
                               .exact_products = x.has_exact_products() && panel.has_exact_products,
                               .x_scales = x.scales(place.block),
                               .w_scale = panel.scale,
                               .scales_first = scales_first(),
                               .totals = totals});
  }

  void put(int64_t first_row, const float* totals) const {
    for (int64_t m = 0; m < x.num_rows(); ++m) {
      std::copy_n(totals + m * kPanelRows, std::min(kPanelRows, out_dim - first_row), y + m * y_stride + first_row);
    }
  }
};

void multiply_in_chunks(const Product& product) {
  const int64_t num_rows = product.x.num_rows();
  const int64_t out_dim = product.out_dim;
  const int64_t chunk_rows = rows_of_chunk(num_rows, out_dim, product.num_threads);
  parallel_for((out_dim + chunk_rows - 1) / chunk_rows, product.num_threads, [&](int64_t chunk) {
    const int64_t first = chunk * chunk_rows;
    const int64_t num_panels = (std::min(chunk_rows, out_dim - first) + kPanelRows - 1) / kPanelRows;
    thread_local std::vector<float>
        totals;  // [num_panels, num_rows, kPanelRows]; kept, so that a product allocates nothing
    totals.assign(static_cast<size_t>(num_panels * num_rows * kPanelRows), 0.0f);
    for (int64_t b = 0; b < product.x.num_blocks(); ++b) {
      for (int64_t p = 0; p < num_panels; ++p) {
        const int64_t row = first + p * kPanelRows;
        const bool goes_down = p + 1 < num_panels;
        const PanelPlace next = product.place(goes_down ? row + kPanelRows : first, goes_down ? b : b + 1);
        product.add(product.place(row, b), next, totals.data() + p * num_rows * kPanelRows);
      }
    }
    for (int64_t p = 0; p < num_panels; ++p) {
      product.put(first + p * kPanelRows, totals.data() + p * num_rows * kPanelRows);
    }
  });
}

// Few rows of x and stored weights: one panel after another, which is as many streams from memory as the hardware follows.
void multiply_stored(const Product& product, const WeightMatrix& weight, int64_t first_weight_row) {
  const BlockedRows& x = product.x;
  parallel_for((product.out_dim + kPanelRows - 1) / kPanelRows, product.num_threads, [&](int64_t p) {
    const int64_t first = p * kPanelRows;
    std::array<float, simd::kFewTokens * kPanelRows> totals;
    int64_t b = 0;
    if (first + kPanelRows <= product.out_dim) {
      simd::StoredProducts products{.x = x.block(0),
                                    .num_rows = x.num_rows(),
                                    .exact_products = x.has_exact_products(),
                                    .x_scales = x.scales(0),
                                    .scales_first = product.scales_first(),
                                    .totals = totals.data()};
      weight.add_products(first_weight_row + first, products);
      b = weight.in_dim() / kBlockLen;
    } else {
      totals.fill(0);
    }
    for (; b < x.num_blocks(); ++b) {
      product.add(product.place(first, b), product.place(first, b), totals.data());
    }
    product.put(first, totals.data());
  });
}

}  // namespace

BlockedRows::BlockedRows(int64_t num_rows, int64_t len)
    : num_rows_(num_rows),
      len_(len),
      num_blocks_((len + kBlockLen - 1) / kBlockLen),
      values_(static_cast<size_t>(num_blocks_ * num_rows * kBlockLen)) {
  if (len % kBlockLen != 0) {
    std::fill(values_.end() - num_rows * kBlockLen, values_.end(), 0.0f);
  }
}

int64_t BlockedRows::block_len(int64_t b) const {
  return std::min<int64_t>(kBlockLen, len_ - b * kBlockLen);
}

float* BlockedRows::place(int64_t b, int64_t m) {
  return values_.data() + (b * num_rows_ + m) * kBlockLen;
}

const float* BlockedRows::block(int64_t b) const {
  return values_.data() + b * num_rows_ * kBlockLen;
}

const float* BlockedRows::scales(int64_t b) const {
  return scales_.empty() ? nullptr : scales_.data() + b * num_rows_;
}

void BlockedRows::set(int64_t m, std::span<const float> row) {
  CHECK_EQ(static_cast<int64_t>(row.size()), len_);
  has_exact_products_ = simd::kernels().is_bf16(row.data(), len_) && has_exact_products_;
  for (int64_t b = 0; b < num_blocks_; ++b) {
    std::copy_n(row.begin() + b * kBlockLen, block_len(b), place(b, m));
  }
}

void BlockedRows::set_quantised(int64_t m, std::span<const float> row, const QuantizeRule& rule) {
  CHECK_EQ(static_cast<int64_t>(row.size()), len_);
  scales_.resize(static_cast<size_t>(num_blocks_ * num_rows_));
  for (int64_t b = 0; b < num_blocks_; ++b) {
    const auto len = static_cast<size_t>(block_len(b));
    scales_[static_cast<size_t>(b * num_rows_ + m)] =
        quantize_block(rule, row.subspan(static_cast<size_t>(b * kBlockLen), len), std::span<float>(place(b, m), len));
  }
}

void panel_product(const BlockedRows& x,
                   int64_t out_dim,
                   const ReadPanel& read,
                   ScaleAssociation association,
                   int num_threads,
                   float* y,
                   int64_t y_stride) {
  multiply_in_chunks({x, out_dim, read, association, num_threads, y, y_stride});
}

void panel_matmul(const BlockedRows& x,
                  const WeightMatrix& weight,
                  WeightForm form,
                  ScaleAssociation association,
                  int num_threads,
                  std::span<float> y) {
  CHECK_EQ(static_cast<int64_t>(y.size()), x.num_rows() * weight.out_dim());
  panel_matmul(
      x, weight, {.first = 0, .count = weight.out_dim()}, form, association, num_threads, y.data(), weight.out_dim());
}

void panel_matmul(const BlockedRows& x,
                  const WeightMatrix& weight,
                  WeightRows rows,
                  WeightForm form,
                  ScaleAssociation association,
                  int num_threads,
                  float* y,
                  int64_t y_stride) {
  CHECK_EQ(x.len(), weight.in_dim());
  CHECK(rows.first % kPanelRows == 0 || form != WeightForm::kCodes);
  const auto read = [&](PanelPlace place, PanelPlace next, Panel& panel) {
    place.first_row += rows.first;
    next.first_row += rows.first;
    panel.has_exact_products = weight.read_panel(form, place, next, panel.values.data());
    panel.scale = weight.scale(place.first_row, place.block);  // a panel never crosses a block of scales
  };
  const ReadPanel read_panel = std::cref(read);
  const int threads = threads_for(x.num_rows() * x.len() * rows.count, num_threads);
  const Product product{x, rows.count, read_panel, association, threads, y, y_stride};
  if (x.num_rows() <= simd::kFewTokens && weight.stores(form)) {
    multiply_stored(product, weight, rows.first);
  } else {
    multiply_in_chunks(product);
  }
}

}  // namespace reference
