// Products of few rows with weights as they are stored, on every level: against the written order, one output at a time.
#include <gtest/gtest.h>

#include <vector>

#include "model/dtype.hpp"
#include "reference/numerics/bf16.hpp"
#include "reference/simd/kernels.hpp"
#include "tests/reference/written_order.hpp"

namespace reference::simd {
namespace {

float number_of(uint8_t code) {
  return model::decode_f8_e4m3(code);
}
float number_of(uint16_t code) {
  return model::decode_bf16(code);
}

// Eight rows of codes that lie further apart than they are long, rows of x, and what has to come out.
template <typename Code>
struct Stored {
  static constexpr int64_t kGap = 5;

  int64_t num_rows;
  int64_t num_blocks;
  int64_t stride;
  std::vector<float> x;     // [num_blocks, num_rows, 128]
  std::vector<Code> codes;  // [8, stride]
  std::vector<float> x_scales;
  std::vector<float> w_scales;

  template <typename MakeNumber, typename MakeCode>
  Stored(int64_t rows, int64_t blocks, const MakeNumber& make_number, const MakeCode& make_code)
      : num_rows(rows), num_blocks(blocks), stride(blocks * kPanelLen + kGap) {
    for (int64_t i = 0; i < blocks * rows * kPanelLen; ++i) {
      x.push_back(make_number());
    }
    for (int64_t i = 0; i < kPanelRows * stride; ++i) {
      codes.push_back(make_code());
    }
    Numbers numbers(99);
    for (int64_t i = 0; i < blocks; ++i) {
      w_scales.push_back(numbers.scattered());
    }
    for (int64_t i = 0; i < blocks * rows; ++i) {
      x_scales.push_back(numbers.scattered());
    }
  }

  [[nodiscard]] float expected(int64_t m, int64_t r, bool has_scales, bool scales_first) const {
    float total = 0;
    for (int64_t b = 0; b < num_blocks; ++b) {
      std::vector<float> w;
      for (int64_t k = 0; k < kPanelLen; ++k) {
        w.push_back(number_of(codes[static_cast<size_t>(r * stride + b * kPanelLen + k)]));
      }
      const float dot = restated_block_dot(x.data() + (b * num_rows + m) * kPanelLen, w.data(), kPanelLen);
      const float sx = x_scales[static_cast<size_t>(b * num_rows + m)];
      const float sw = w_scales[static_cast<size_t>(b)];
      total += !has_scales ? dot : scales_first ? dot * (sx * sw) : (dot * sx) * sw;
    }
    return total;
  }

  void expect_same(const Kernels& kernels, bool has_scales, bool scales_first, bool exact_products = true) const {
    std::vector<float> result(static_cast<size_t>(num_rows * kPanelRows), std::nanf(""));
    const StoredProducts products{.x = x.data(),
                                  .num_rows = num_rows,
                                  .num_blocks = num_blocks,
                                  .exact_products = exact_products,
                                  .codes = codes.data(),
                                  .stride = stride,
                                  .next = codes.data(),
                                  .x_scales = has_scales ? x_scales.data() : nullptr,
                                  .w_scales = w_scales.data(),
                                  .scales_first = scales_first,
                                  .totals = result.data()};
    (sizeof(Code) == 1 ? kernels.add_e4m3_rows : kernels.add_bf16_rows)(products);
    for (int64_t m = 0; m < num_rows; ++m) {
      for (int64_t r = 0; r < kPanelRows; ++r) {
        ASSERT_EQ(bits(result[static_cast<size_t>(m * kPanelRows + r)]), bits(expected(m, r, has_scales, scales_first)))
            << "row " << m << " of " << num_rows << ", weight row " << r << ", " << num_blocks << " blocks";
      }
    }
  }
};

class StoredRows : public testing::TestWithParam<Level> {
 protected:
  static const Kernels& kernels() { return kernels_of(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Levels, StoredRows, testing::ValuesIn(supported_levels()), [](const auto& instance) {
  return std::string(level_name(instance.param));
});

constexpr int64_t kNumsBlocks[] = {1, 2, 5, 7};  // the rows ahead are these, then the next ones

TEST_P(StoredRows, E4m3_EveryCodeButNan_FollowsTheWrittenOrder) {
  Numbers numbers(3);
  const auto code = [&] { return static_cast<uint8_t>(numbers.next() % 0x7F | (numbers.next() % 2) << 7); };
  for (int64_t rows = 1; rows <= kFewTokens; ++rows) {
    for (const int64_t blocks : kNumsBlocks) {
      const Stored<uint8_t> stored(
          rows, blocks, [&] { return number_of(code()); }, code);
      stored.expect_same(kernels(), true, true);
      stored.expect_same(kernels(), true, false);
      stored.expect_same(kernels(), false, true);
    }
  }
}

// Zeros of both signs, the subnormal codes and the smallest normal ones alone: nothing larger hides a lost bit.
TEST_P(StoredRows, E4m3_SmallCodesAndMinusZero) {
  Numbers numbers(5);
  const auto code = [&] { return static_cast<uint8_t>(numbers.next() % 10 | (numbers.next() % 2) << 7); };
  for (int64_t rows = 1; rows <= kFewTokens; ++rows) {
    Stored<uint8_t> stored(
        rows, 2, [&] { return number_of(code()); }, code);
    stored.expect_same(kernels(), true, true);
    stored.codes.assign(stored.codes.size(), 0x80);
    stored.x.assign(stored.x.size(), 1.0f);
    stored.expect_same(kernels(), false, true);
  }
}

// A NaN among the weights of the second block, at every place of a vector; its row alone is NaN.
TEST_P(StoredRows, E4m3_NanStaysInItsRow) {
  Numbers numbers(7);
  const auto code = [&] { return static_cast<uint8_t>(numbers.next() % 0x7F); };
  for (int64_t rows = 1; rows <= kFewTokens; ++rows) {
    for (int64_t column = 0; column < 40; ++column) {
      Stored<uint8_t> stored(
          rows, 3, [&] { return number_of(code()); }, code);
      stored.codes[static_cast<size_t>(6 * stored.stride + kPanelLen + column)] = column % 2 == 0 ? 0x7F : 0xFF;
      stored.expect_same(kernels(), true, true);
      EXPECT_TRUE(std::isnan(stored.expected(0, 6, true, true)));
      EXPECT_FALSE(std::isnan(stored.expected(0, 5, true, true)));
    }
  }
}

TEST_P(StoredRows, E4m3_NanOfAnActivationStaysInItsRow) {
  Numbers numbers(9);
  const auto code = [&] { return static_cast<uint8_t>(numbers.next() % 0x7F); };
  Stored<uint8_t> stored(
      4, 3, [&] { return number_of(code()); }, code);
  stored.x[static_cast<size_t>((1 * 4 + 2) * kPanelLen + 77)] = std::nanf("");
  stored.expect_same(kernels(), true, true);
  EXPECT_TRUE(std::isnan(stored.expected(2, 0, true, true)));
  EXPECT_FALSE(std::isnan(stored.expected(1, 0, true, true)));
}

TEST_P(StoredRows, Bf16_FollowsTheWrittenOrder) {
  Numbers numbers(11);
  const auto number = [&] { return round_to_bf16(numbers.scattered()); };
  for (int64_t rows = 1; rows <= kFewTokens; ++rows) {
    for (const int64_t blocks : kNumsBlocks) {
      const Stored<uint16_t> stored(rows, blocks, number, [&] {
        return numbers.next() % 9 == 0 ? static_cast<uint16_t>(numbers.next() % 2 << 15) : encode_bf16(number());
      });
      stored.expect_same(kernels(), false, true);
      stored.expect_same(kernels(), false, true, false);
    }
  }
}

// Products that do not fit a float, from weights at the ends of the range and beyond: rounded before they are added.
TEST_P(StoredRows, Bf16_ProductsThatDoNotFitAFloat_AreRoundedFirst) {
  Numbers numbers(13);
  for (const int exponent : {1, 40, 66, 67, 68, 186, 187, 200, 254}) {
    const auto code = [&] {
      return static_cast<uint16_t>(exponent << 7 | (numbers.next() % 128) | numbers.next() % 2 << 15);
    };
    for (int64_t rows = 1; rows <= kFewTokens; ++rows) {
      const float x_magnitude = exponent < 127 ? 0x1p-60f : 0x1p59f;
      const auto number = [&] {
        return round_to_bf16(x_magnitude * (1.0f + static_cast<float>(numbers.next() % 128) / 128));
      };
      const Stored<uint16_t> stored(rows, 2, number, code);
      stored.expect_same(kernels(), false, true);
    }
  }
}

// One infinity or NaN among ordinary weights.
TEST_P(StoredRows, Bf16_InfinityAndNan) {
  Numbers numbers(15);
  const auto number = [&] { return round_to_bf16(numbers.scattered()); };
  for (const uint16_t special : {uint16_t{0x7F80}, uint16_t{0xFF80}, uint16_t{0x7FC0}, uint16_t{0x0001}}) {
    Stored<uint16_t> stored(3, 3, number, [&] { return encode_bf16(number()); });
    stored.codes[static_cast<size_t>(3 * stored.stride + 2 * kPanelLen + 100)] = special;
    stored.expect_same(kernels(), false, true);
  }
}

}  // namespace
}  // namespace reference::simd
