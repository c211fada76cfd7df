// The blocked products against dot_in_order and block_dot, one output at a time, on every level and number of threads.
#include "reference/panel_matmul.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/quantize.hpp"
#include "reference/simd/kernels.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

// Lehmer's generator, Park and Miller 1988.
class Numbers {
 public:
  uint32_t next() {
    state_ = state_ * 48271 % 2147483647;
    return static_cast<uint32_t>(state_);
  }

 private:
  uint64_t state_ = 17;
};

HandMadeWeights fp8_weight(int64_t out_dim, int64_t in_dim, Numbers& numbers) {
  std::vector<uint8_t> codes(static_cast<size_t>(out_dim * in_dim));
  for (auto& code : codes) {
    code = static_cast<uint8_t>(numbers.next() % 0x7F | (numbers.next() % 2) << 7);
  }
  const int64_t rows = (out_dim + 127) / 128;
  const int64_t columns = (in_dim + 127) / 128;
  std::vector<float> scales(static_cast<size_t>(rows * columns));
  for (auto& scale : scales) {
    scale = static_cast<float>(numbers.next() % 1000 + 1) / 4096;
  }
  HandMadeWeights weights;
  weights.set("w", model::make_tensor(model::DType::kF8E4M3, {out_dim, in_dim}, std::move(codes)));
  weights.set("w_scale_inv", model::make_tensor(model::DType::kF32, {rows, columns}, std::move(scales)));
  return weights;
}

HandMadeWeights bf16_weight(int64_t out_dim, int64_t in_dim, Numbers& numbers, uint32_t lowest_exponent) {
  std::vector<uint16_t> codes(static_cast<size_t>(out_dim * in_dim));
  for (auto& code : codes) {
    code = static_cast<uint16_t>(((lowest_exponent + numbers.next() % 12) << 7) + numbers.next() % 128 +
                                 (numbers.next() % 2 << 15));
  }
  HandMadeWeights weights;
  weights.set("w", model::make_tensor(model::DType::kBF16, {out_dim, in_dim}, std::move(codes)));
  return weights;
}

std::vector<float> bf16_row(int64_t len, Numbers& numbers) {
  std::vector<float> row(static_cast<size_t>(len));
  for (auto& value : row) {
    value = round_to_bf16((static_cast<float>(numbers.next() % 4096) - 2048) /
                          static_cast<float>(1 << numbers.next() % 12));
  }
  return row;
}

std::vector<float> product(
    const BlockedRows& x, const WeightMatrix& weight, WeightForm form, ScaleAssociation association, int num_threads) {
  std::vector<float> y(static_cast<size_t>(x.num_rows() * weight.out_dim()), std::nanf(""));
  panel_matmul(x, weight, form, association, num_threads, y);
  return y;
}

struct Size {
  int64_t num_rows;
  int64_t out_dim;
  int64_t in_dim;
};
const std::vector<Size> kSizes{
    {1, 1, 1}, {1, 8, 128}, {2, 24, 256}, {3, 130, 200}, {4, 9, 17}, {4, 131, 640}, {5, 67, 384}, {33, 96, 256}};

// Calls check() on every level with 1, 2 and 5 threads.
template <typename Check>
void on_every_level(const Check& check) {
  for (const auto level : simd::supported_levels()) {
    simd::use_level(level);
    for (const int num_threads : {1, 2, 5}) {
      check(num_threads, fmt::format("{}, {} threads", simd::level_name(level), num_threads));
    }
  }
  simd::use_level(simd::supported_levels().back());
}

TEST(PanelMatmul, QuantisedRows_MeetTheScalesOfEachBlock) {
  for (const auto& [num_rows, out_dim, in_dim] : kSizes) {
    Numbers numbers;
    const HandMadeWeights weights = fp8_weight(out_dim, in_dim, numbers);
    const WeightMatrix weight(weights, "w");
    BlockedRows x(num_rows, in_dim);
    std::vector<QuantizedRow> rows;
    for (int64_t m = 0; m < num_rows; ++m) {
      const auto row = bf16_row(in_dim, numbers);
      rows.push_back(quantize_row({}, row));
      x.set_quantised(m, row, {});
    }
    for (const auto association : {ScaleAssociation::kScalesFirst, ScaleAssociation::kActivationFirst}) {
      std::vector<float> expected;
      for (const QuantizedRow& row : rows) {
        for (int64_t n = 0; n < out_dim; ++n) {
          std::vector<float> codes(static_cast<size_t>(in_dim));
          weight.code_row(n, codes);
          float sum = 0;
          for (size_t begin = 0, b = 0; begin < codes.size(); begin += 128, ++b) {
            const size_t len = std::min<size_t>(128, codes.size() - begin);
            const float dot = block_dot<float>(std::span<const float>(row.codes).subspan(begin, len),
                                               std::span<const float>(codes).subspan(begin, len));
            const float scale = weight.scale(n, static_cast<int64_t>(b));
            sum += association == ScaleAssociation::kScalesFirst ? dot * (row.scales[b] * scale)
                                                                 : (dot * row.scales[b]) * scale;
          }
          expected.push_back(sum);
        }
      }
      on_every_level([&](int num_threads, const std::string& where) {
        EXPECT_EQ(product(x, weight, WeightForm::kCodes, association, num_threads), expected) << where;
      });
    }
  }
}

void expect_dots(const HandMadeWeights& weights, WeightForm form, float x_factor, int64_t num_rows) {
  const WeightMatrix weight(weights, "w");
  Numbers numbers;
  BlockedRows x(num_rows, weight.in_dim());
  std::vector<float> expected;
  for (int64_t m = 0; m < num_rows; ++m) {
    auto row = bf16_row(weight.in_dim(), numbers);
    std::for_each(row.begin(), row.end(), [&](float& value) { value *= x_factor; });
    x.set(m, row);
    for (int64_t n = 0; n < weight.out_dim(); ++n) {
      std::vector<float> w(row.size());
      form == WeightForm::kBf16 ? weight.bf16_row(n, w) : weight.row(n, w);
      expected.push_back(dot_in_order<float>(row, w));
    }
  }
  on_every_level([&](int num_threads, const std::string& where) {
    EXPECT_EQ(product(x, weight, form, ScaleAssociation::kScalesFirst, num_threads), expected) << where;
  });
}

TEST(PanelMatmul, OtherRows_AreDotsInOrder) {
  for (const auto& [num_rows, out_dim, in_dim] : kSizes) {
    Numbers numbers;
    expect_dots(bf16_weight(out_dim, in_dim, numbers, 120), WeightForm::kBf16, 1.0f, num_rows);
    expect_dots(fp8_weight(out_dim, in_dim, numbers), WeightForm::kBf16, 1.0f, num_rows);
    expect_dots(fp8_weight(out_dim, in_dim, numbers), WeightForm::kValues, 1.0f, num_rows);
  }
}

// Products around the smallest floats, where a product is rounded and a fused one is not; and beyond the largest, where a sum of
// the unrounded product would still be finite.
TEST(PanelMatmul, ProductsThatDoNotFitAFloat_AreRoundedFirst) {
  Numbers numbers;
  for (const int64_t num_rows : {3, 7}) {
    expect_dots(bf16_weight(40, 300, numbers, 60), WeightForm::kBf16, 0x1p-80f, num_rows);
  }
  HandMadeWeights large;
  std::vector<uint16_t> codes(32, 0);
  codes[0] = encode_bf16(-0x1p63f);
  codes[16] = encode_bf16(0x1p64f);
  large.set("w", model::make_tensor(model::DType::kBF16, {1, 32}, std::move(codes)));
  const WeightMatrix weight(large, "w");
  std::vector<float> row(32, 0x1p64f);
  BlockedRows x(1, 32);
  x.set(0, row);
  on_every_level([&](int num_threads, const std::string& where) {
    EXPECT_EQ(product(x, weight, WeightForm::kBf16, ScaleAssociation::kScalesFirst, num_threads)[0],
              std::numeric_limits<float>::infinity())
        << where;
  });
}

// Nobody's NaN reaches anybody else's output.
TEST(PanelMatmul, NanStaysInItsRowAndColumn) {
  Numbers numbers;
  HandMadeWeights weights = fp8_weight(20, 130, numbers);
  const auto codes = weights.weight("w").codes<uint8_t>();
  std::vector<uint8_t> with_nan(codes.begin(), codes.end());
  with_nan[11 * 130 + 129] = 0xFF;
  weights.set("w", model::make_tensor(model::DType::kF8E4M3, {20, 130}, std::move(with_nan)));
  const WeightMatrix weight(weights, "w");
  BlockedRows x(4, 130);
  for (int64_t m = 0; m < 4; ++m) {
    auto row = bf16_row(130, numbers);
    row[0] = m == 2 ? std::nanf("") : row[0];
    x.set_quantised(m, row, {});
  }
  on_every_level([&](int num_threads, const std::string& where) {
    const auto y = product(x, weight, WeightForm::kCodes, ScaleAssociation::kScalesFirst, num_threads);
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), i / 20 == 2 || i % 20 == 11) << where << " " << i;
    }
  });
}

}  // namespace
}  // namespace reference
