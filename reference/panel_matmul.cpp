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

// Weight rows that a thread takes at a time. Few rows of x: as many streams from memory as the hardware follows. Many: enough
// panels that a block of x, once in the first cache, serves all of them.
constexpr int64_t kFewRows = 4;
constexpr int64_t kChunkOfFew = kPanelRows;
constexpr int64_t kChunkOfMany = 8 * kPanelRows;

}  // namespace

BlockedRows::BlockedRows(int64_t num_rows, int64_t len)
    : num_rows_(num_rows),
      len_(len),
      num_blocks_((len + kBlockLen - 1) / kBlockLen),
      values_(static_cast<size_t>(num_blocks_ * num_rows * kBlockLen)) {}

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
  const int64_t num_rows = x.num_rows();
  const int64_t chunk_rows = num_rows <= kFewRows ? kChunkOfFew : kChunkOfMany;
  const auto& kernels = simd::kernels();
  parallel_for((out_dim + chunk_rows - 1) / chunk_rows, num_threads, [&](int64_t chunk) {
    const int64_t first = chunk * chunk_rows;
    const int64_t last = std::min(first + chunk_rows, out_dim);
    const int64_t num_panels = (last - first + kPanelRows - 1) / kPanelRows;
    thread_local std::vector<float>
        totals;  // [num_panels, num_rows, kPanelRows]; kept, so that a product allocates nothing
    totals.assign(static_cast<size_t>(num_panels * num_rows * kPanelRows), 0.0f);
    Panel panel;  // written whole by every read() but the ragged ones
    for (int64_t b = 0; b < x.num_blocks(); ++b) {
      const int64_t len = std::min<int64_t>(kBlockLen, x.len() - b * kBlockLen);
      for (int64_t p = 0; p < num_panels; ++p) {
        const int64_t first_row = first + p * kPanelRows;
        const int64_t panel_rows = std::min(kPanelRows, out_dim - first_row);
        if (len < kBlockLen || panel_rows < kPanelRows) {
          panel = {};
        }
        read(first_row, panel_rows, b, len, panel);
        kernels.add_block({.x = x.block(b),
                           .num_rows = num_rows,
                           .panel = panel.values.data(),
                           .num_steps = (len + kNumLanes - 1) / kNumLanes,
                           .exact_products = x.has_exact_products() && panel.has_exact_products,
                           .x_scales = x.scales(b),
                           .w_scales = panel.scales.data(),
                           .scales_first = association == ScaleAssociation::kScalesFirst,
                           .totals = totals.data() + p * num_rows * kPanelRows});
      }
    }
    for (int64_t m = 0; m < num_rows; ++m) {
      for (int64_t p = 0; p < num_panels; ++p) {
        const int64_t n = first + p * kPanelRows;
        std::copy_n(
            totals.begin() + (p * num_rows + m) * kPanelRows, std::min(kPanelRows, last - n), y + m * y_stride + n);
      }
    }
  });
}

std::vector<float> panel_matmul(
    const BlockedRows& x, const WeightMatrix& weight, WeightForm form, ScaleAssociation association, int num_threads) {
  CHECK_EQ(x.len(), weight.in_dim());
  std::vector<float> y(static_cast<size_t>(x.num_rows() * weight.out_dim()));
  const auto read = [&](int64_t first_row, int64_t num_rows, int64_t block, int64_t len, Panel& panel) {
    panel.has_exact_products =
        weight.read_panel(form, first_row, num_rows, block * kPanelLen, len, panel.values.data());
    panel.scales.fill(weight.scale(first_row, block));  // a panel never crosses a block of scales
  };
  panel_product(x, weight.out_dim(), read, association, num_threads, y.data(), weight.out_dim());
  return y;
}

}  // namespace reference
