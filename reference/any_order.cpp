#include "reference/any_order.hpp"

#include <algorithm>
#include <array>

#include "reference/any_order_tile.hpp"
#include "reference/parallel.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {
namespace {

using simd::kPanelRows;
static_assert(kTileRows % kPanelRows == 0);

// A block of x, once in the first cache, serves so many weight rows, and the sums of these with so many tokens fit the second one.
constexpr int64_t kChunkRows = 4 * kTileRows;
constexpr int64_t kChunkTokens = 256;

// Rows of x as TileProducts has them: [block][tile of two vectors of tokens][128][tokens of the tile], zero beyond the rows.
class TokenTiles {
 public:
  TokenTiles(const BlockedRows& x, int64_t vec_len, int num_threads)
      : num_tokens_((x.num_rows() + vec_len - 1) / vec_len * vec_len),
        is_quantised_(x.scales(0) != nullptr),
        values_(static_cast<size_t>(x.num_blocks() * num_tokens_ * kBlockLen)),
        scales_(static_cast<size_t>(is_quantised_ ? x.num_blocks() * num_tokens_ : 0)) {
    parallel_for(x.num_blocks(), num_threads, [&](int64_t b) {
      float* block = values_.data() + b * num_tokens_ * kBlockLen;
      for (int64_t first = 0; first < x.num_rows(); first += 2 * vec_len) {
        const int64_t width = std::min(2 * vec_len, num_tokens_ - first);
        for (int64_t m = first; m < std::min(first + width, x.num_rows()); ++m) {
          for (int64_t k = 0; k < kBlockLen; ++k) {
            block[first * kBlockLen + k * width + m - first] = x.block(b)[m * kBlockLen + k];
          }
        }
      }
      if (is_quantised_) {
        std::copy_n(x.scales(b), x.num_rows(), scales_.begin() + b * num_tokens_);
      }
    });
  }

  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] const float* values(int64_t b, int64_t token) const {
    return values_.data() + (b * num_tokens_ + token) * kBlockLen;
  }
  [[nodiscard]] const float* scales(int64_t b, int64_t token) const {
    return is_quantised_ ? scales_.data() + b * num_tokens_ + token : nullptr;
  }

 private:
  int64_t num_tokens_;
  bool is_quantised_;
  std::vector<float> values_;
  std::vector<float> scales_;  // [block][token]
};

struct WeightTile {
  alignas(64) std::array<float, kTileRows * kBlockLen> values;
  std::array<float, kTileRows> scales;
};

// Rows [first, first + kTileRows) of block b, as far as the matrix has them.
void read_tile(const WeightMatrix& weight, WeightForm form, int64_t first, int64_t b, WeightTile& tile) {
  const int64_t len = std::min<int64_t>(kBlockLen, weight.in_dim() - b * kBlockLen);
  if (len < kBlockLen || first + kTileRows > weight.out_dim()) {
    tile.values.fill(0);
  }
  tile.scales.fill(1);
  for (int64_t r = 0; r < std::min(kTileRows, weight.out_dim() - first); r += kPanelRows) {
    const PanelPlace place{
        .first_row = first + r, .num_rows = std::min(kPanelRows, weight.out_dim() - first - r), .block = b, .len = len};
    PanelPlace next = place;
    next.first_row += kPanelRows;
    weight.read_panel(form, place, next, tile.values.data() + r * kBlockLen);
    std::fill_n(tile.scales.begin() + r, kPanelRows, weight.scale(first + r, b));
  }
}

}  // namespace

std::vector<float> any_order_matmul(const BlockedRows& x,
                                    const WeightMatrix& weight,
                                    WeightForm form,
                                    int num_threads) {
  CHECK_EQ(x.len(), weight.in_dim());
  const int64_t out_dim = weight.out_dim();
  std::vector<float> y(static_cast<size_t>(x.num_rows() * out_dim));
  const TileKernel& kernel = tile_kernel(simd::kernels().level);
  if (x.num_rows() < kernel.vec_len) {
    panel_matmul(x, weight, form, ScaleAssociation::kScalesFirst, num_threads, y);
    return y;
  }
  const TokenTiles tokens(x, kernel.vec_len, num_threads);
  const int64_t num_chunks = (out_dim + kChunkRows - 1) / kChunkRows;
  const int64_t num_slices = (tokens.num_tokens() + kChunkTokens - 1) / kChunkTokens;
  parallel_for(num_chunks * num_slices, num_threads, [&](int64_t part) {
    const int64_t first = part % num_chunks * kChunkRows;
    const int64_t last = std::min(first + kChunkRows, out_dim);
    const int64_t first_token = part / num_chunks * kChunkTokens;
    const int64_t num_tokens = std::min(kChunkTokens, tokens.num_tokens() - first_token);
    std::vector<float> totals(static_cast<size_t>(kChunkRows * num_tokens));
    WeightTile tile;
    for (int64_t b = 0; b < x.num_blocks(); ++b) {
      for (int64_t row = first; row < last; row += kTileRows) {
        read_tile(weight, form, row, b, tile);
        kernel.add({.weights = tile.values.data(),
                    .x = tokens.values(b, first_token),
                    .num_tokens = num_tokens,
                    .w_scales = tile.scales.data(),
                    .x_scales = tokens.scales(b, first_token),
                    .totals = totals.data() + (row - first) * num_tokens});
      }
    }
    for (int64_t m = first_token; m < std::min(first_token + num_tokens, x.num_rows()); ++m) {
      for (int64_t n = first; n < last; ++n) {
        y[static_cast<size_t>(m * out_dim + n)] =
            totals[static_cast<size_t>((n - first) * num_tokens + m - first_token)];
      }
    }
  });
  return y;
}

}  // namespace reference
