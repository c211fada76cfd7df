// Every level against the written order and against the scalar functions, bit by bit.
#include "reference/simd/kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "model/dtype.hpp"
#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/functions.hpp"
#include "tests/reference/written_order.hpp"

namespace reference::simd {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class Kernel : public testing::TestWithParam<Level> {
 protected:
  static const Kernels& kernels() { return kernels_of(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Levels, Kernel, testing::ValuesIn(supported_levels()), [](const auto& instance) {
  return std::string(level_name(instance.param));
});

enum class Scales { kNone, kTogether, kActivationFirst };

// Operands of one block and what has to come out.
struct Block {
  int64_t num_rows;
  int64_t len;
  std::vector<float> x;
  std::vector<float> w;
  std::vector<float> x_scales;
  float w_scale = 0;
  std::vector<float> totals;

  template <typename MakeNumber>
  Block(int64_t rows, int64_t block_len, const MakeNumber& make)
      : num_rows(rows),
        len(block_len),
        x(static_cast<size_t>(rows * kPanelLen)),
        w(static_cast<size_t>(kPanelRows * kPanelLen)) {
    for (auto* matrix : {&x, &w}) {
      for (size_t i = 0; i < matrix->size(); ++i) {
        (*matrix)[i] = static_cast<int64_t>(i) % kPanelLen < len ? make() : 0.0f;
      }
    }
    Numbers numbers(99);
    for (int64_t i = 0; i < rows; ++i) {
      x_scales.push_back(numbers.scattered());
    }
    w_scale = numbers.scattered();
    for (int64_t i = 0; i < rows * kPanelRows; ++i) {
      totals.push_back(numbers.scattered());
    }
  }

  [[nodiscard]] std::vector<float> run(const Kernels& kernels, bool exact_products, Scales scales) const {
    std::vector<float> result = totals;
    kernels.add_block({.x = x.data(),
                       .num_rows = num_rows,
                       .panel = w.data(),
                       .num_steps = (len + 15) / 16,
                       .exact_products = exact_products,
                       .x_scales = scales == Scales::kNone ? nullptr : x_scales.data(),
                       .w_scale = w_scale,
                       .scales_first = scales == Scales::kTogether,
                       .totals = result.data()});
    return result;
  }

  [[nodiscard]] float expected(int64_t m, int64_t r, Scales scales) const {
    const float dot = restated_block_dot(x.data() + m * kPanelLen, w.data() + r * kPanelLen, len);
    const float sx = x_scales[static_cast<size_t>(m)];
    const float scaled = scales == Scales::kNone       ? dot
                         : scales == Scales::kTogether ? dot * (sx * w_scale)
                                                       : (dot * sx) * w_scale;
    return totals[static_cast<size_t>(m * kPanelRows + r)] + scaled;
  }

  void expect_same(const Kernels& kernels, bool exact_products, Scales scales = Scales::kNone) const {
    const auto result = run(kernels, exact_products, scales);
    for (int64_t m = 0; m < num_rows; ++m) {
      for (int64_t r = 0; r < kPanelRows; ++r) {
        ASSERT_EQ(bits(result[static_cast<size_t>(m * kPanelRows + r)]), bits(expected(m, r, scales)))
            << m << " of " << num_rows << ", " << r << ", len " << len;
      }
    }
  }
};

TEST_P(Kernel, AnyNumbers_FollowTheWrittenOrder) {
  Numbers numbers(3);
  for (int64_t rows = 1; rows <= 13; ++rows) {
    for (const int64_t len : {1, 15, 16, 17, 72, 127, 128}) {
      Block(rows, len, [&] { return numbers.scattered(); }).expect_same(kernels(), false);
    }
  }
}

TEST_P(Kernel, Bf16Numbers_FusedOrNot_FollowTheWrittenOrder) {
  Numbers numbers(5);
  for (int64_t rows = 1; rows <= 13; ++rows) {
    const Block block(rows, 128, [&] { return round_to_bf16(numbers.scattered()); });
    block.expect_same(kernels(), true);
    block.expect_same(kernels(), false);
  }
}

TEST_P(Kernel, E4m3Codes_MeetTheirScalesInEitherOrder) {
  Numbers numbers(7);
  for (const int64_t len : {72, 128}) {
    const Block block(7, len, [&] { return model::decode_f8_e4m3(static_cast<uint8_t>(numbers.next() % 0x7F)); });
    block.expect_same(kernels(), true, Scales::kTogether);
    block.expect_same(kernels(), true, Scales::kActivationFirst);
  }
}

// (1 + d)^2 cancels against 1 + 2d only if it was rounded: what is not marked as exact must not be fused.
TEST_P(Kernel, ProductsThatAreNotExact_AreRoundedBeforeTheyAreAdded) {
  constexpr float kD = 0x1p-14f;
  Block block(1, 128, [] { return 0.0f; });
  block.totals.assign(block.totals.size(), 0.0f);
  block.x[0] = -(1 + 2 * kD);
  block.x[16] = 1 + kD;
  block.w[0] = 1;
  block.w[16] = 1 + kD;
  EXPECT_EQ(block.run(kernels(), false, Scales::kNone)[0], 0);
}

TEST_P(Kernel, InfinitiesNanAndSubnormals_FollowTheWrittenOrder) {
  const float hostile[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, 0x1.8p-127f, 0x1p-75f, 0x1.02p-74f, 0x1p64f, -0x1p127f};
  Numbers numbers(11);
  for (int trial = 0; trial < 50; ++trial) {
    Block block(4, 128, [&] { return hostile[numbers.next() % std::size(hostile)]; });
    block.expect_same(kernels(), false);
    block.x[numbers.next() % block.x.size()] = kInf;
    block.w[numbers.next() % block.w.size()] = trial % 2 == 0 ? -kInf : kNaN;
    block.expect_same(kernels(), false);
  }
}

// Rows lie further apart than they are long, and there are fewer or more of them than a panel or a block has.
TEST_P(Kernel, DotsAndWeightedRows_FollowTheWrittenOrder) {
  constexpr int64_t kStride = 150;
  Numbers numbers(11);
  for (const int64_t num_rows : {1, 7, 8, 19, 130}) {
    for (const int64_t len : {1, 16, 33, 128, 149}) {
      std::vector<float> x(static_cast<size_t>(len));
      std::vector<float> weights(static_cast<size_t>(num_rows));
      std::vector<float> rows(static_cast<size_t>(num_rows * kStride), kNaN);
      for (float& value : x) {
        value = numbers.scattered();
      }
      for (int64_t r = 0; r < num_rows; ++r) {
        weights[static_cast<size_t>(r)] = numbers.scattered();
        for (int64_t k = 0; k < len; ++k) {
          rows[static_cast<size_t>(r * kStride + k)] = numbers.scattered();
        }
      }
      const auto dot = [](const std::vector<float>& a, const float* b) {
        float total = 0;
        for (size_t begin = 0; begin < a.size(); begin += kPanelLen) {
          total += restated_block_dot(
              a.data() + begin, b + begin, std::min<int64_t>(kPanelLen, static_cast<int64_t>(a.size() - begin)));
        }
        return total;
      };
      std::vector<float> dots(static_cast<size_t>(num_rows));
      kernels().dots(x.data(), rows.data(), kStride, num_rows, len, dots.data());
      for (int64_t r = 0; r < num_rows; ++r) {
        ASSERT_EQ(bits(dots[static_cast<size_t>(r)]), bits(dot(x, rows.data() + r * kStride)))
            << num_rows << " " << len;
      }
      std::vector<float> sums(static_cast<size_t>(len));
      kernels().weighted_rows(weights.data(), num_rows, rows.data(), kStride, len, sums.data());
      for (int64_t j = 0; j < len; ++j) {
        std::vector<float> column(weights.size());
        for (size_t i = 0; i < column.size(); ++i) {
          column[i] = rows[i * kStride + static_cast<size_t>(j)];
        }
        ASSERT_EQ(bits(sums[static_cast<size_t>(j)]), bits(dot(weights, column.data()))) << num_rows << " " << len;
      }
    }
  }
}

TEST_P(Kernel, DecodesEveryE4m3Code) {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 256 + 7; ++i) {
    codes.push_back(static_cast<uint8_t>(i));
  }
  std::vector<float> out(codes.size());
  kernels().decode_e4m3(codes.data(), static_cast<int64_t>(codes.size()), out.data());
  for (size_t i = 0; i < codes.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(model::decode_f8_e4m3(codes[i]))) << i;
  }
}

// Scales at both ends of the range in which no result needs a look of its own, and beyond.
TEST_P(Kernel, DequantisesEveryE4m3Code_WithAnyScale) {
  constexpr int64_t kLen = 127;  // of 263: rows of every remainder
  constexpr int64_t kOutStride = 130;
  for (const bool has_nan : {false, true}) {
    std::vector<uint8_t> codes;
    for (int i = 0; i < 2 * 263; ++i) {
      codes.push_back(static_cast<uint8_t>(!has_nan && i % 128 == 127 ? 0 : i));
    }
    for (const float scale :
         {0.3f, 0x1.3p-7f, 0x1p-50f, 0x1p50f, 0x1.3p-51f, 0x1.3p50f, 0x1.7p-127f, 0x1p125f, 0.0f, -0.7f, kInf, kNaN}) {
      std::vector<float> out(4 * kOutStride, -5.0f);
      const StoredPanel stored{.codes = codes.data(), .stride = 131, .num_rows = 4, .next = codes.data()};
      const bool has_exact_products = kernels().dequantize_e4m3(stored, kLen, scale, out.data(), kOutStride);
      bool all_exact = true;
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t i = 0; i < kOutStride; ++i) {
          const float got = out[static_cast<size_t>(r * kOutStride + i)];
          const float code = model::decode_f8_e4m3(codes[static_cast<size_t>(r * 131 + i)]);
          const float expected = i < kLen ? round_to_bf16(code * scale) : -5.0f;
          ASSERT_EQ(bits(got), bits(expected)) << code << " * " << scale;
          all_exact = all_exact && (got == 0 || (std::abs(got) >= kSmallestExact && std::abs(got) < kLargestExact));
        }
      }
      EXPECT_EQ(has_exact_products, all_exact) << scale;
    }
  }
}

TEST_P(Kernel, DecodesEveryBf16Code_AndSaysWhichHaveExactProducts) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const auto stored = static_cast<uint16_t>(code);
    float out = 0;
    const bool has_exact_products = kernels().decode_bf16(&stored, 1, &out);
    ASSERT_EQ(std::bit_cast<uint32_t>(out), code << 16);
    ASSERT_EQ(has_exact_products, out == 0 || (std::abs(out) >= kSmallestExact && std::abs(out) < kLargestExact))
        << out;
    ASSERT_EQ(kernels().is_bf16(&out, 1), has_exact_products);
  }
}

TEST_P(Kernel, NumbersWithMoreDigits_AreNotBf16) {
  const std::vector<float> values{1.0f, 2.0f, 1.00390625f};
  EXPECT_TRUE(kernels().is_bf16(values.data(), 2));
  EXPECT_FALSE(kernels().is_bf16(values.data(), 3));
}

// Every exponent with changing fractions, both signs, NaN and infinity among them; a prime stride.
std::vector<float> grid(uint64_t stride) {
  std::vector<float> values;
  for (uint64_t b = 0; b < 0x100000000; b += stride) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(b)));
  }
  for (const float value : {0.0f, -0.0f, kInf, -kInf, kNaN, 464.0f, 464.00003f, -448.0f, 0x1p-10f, 0x1.8p-9f}) {
    values.push_back(value);
  }
  return values;
}

template <typename Vector, typename Scalar>
void expect_same_function(const std::vector<float>& x, const Vector& vector, const Scalar& scalar) {
  std::vector<float> out(x.size());
  vector(x.data(), static_cast<int64_t>(x.size()), out.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(scalar(x[i]))) << x[i];
  }
}

TEST_P(Kernel, RoundsToE4m3AsTheScalarFunctionDoes) {
  const auto x = grid(65521);
  expect_same_function(
      x,
      [](const float* in, int64_t len, float* out) { kernels().products_to_e4m3(in, len, 1.0f, out); },
      [](float v) { return round_to_f8_e4m3(v); });
  expect_same_function(
      x,
      [](const float* in, int64_t len, float* out) { kernels().quotients_to_e4m3(in, len, 0.3f, out); },
      [](float v) { return round_to_f8_e4m3(v / 0.3f); });
}

TEST_P(Kernel, RoundsToBf16AsTheScalarFunctionDoes) {
  const auto x = grid(65521);
  std::vector<uint16_t> codes(x.size());
  kernels().encode_bf16(x.data(), static_cast<int64_t>(x.size()), codes.data());
  auto scaled = x;
  kernels().scale_to_bf16(scaled.data(), static_cast<int64_t>(scaled.size()), 0.7f);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(codes[i], encode_bf16(x[i])) << x[i];
    ASSERT_EQ(bits(scaled[i]), bits(round_to_bf16(x[i] * 0.7f))) << x[i];
  }
}

TEST_P(Kernel, ExpAndSiluAreTheScalarFunctions) {
  auto x = grid(65521);
  for (int i = -100'000; i < 100'000; ++i) {
    x.push_back(static_cast<float>(i) * 0x1.1p-10f);
  }
  expect_same_function(x, kernels().exp, exp_f32);
  expect_same_function(x, kernels().silu, silu_f32);
}

TEST_P(Kernel, LargestMagnitude_IsNanIfThereIsOne) {
  std::vector<float> x(37, -1.0f);
  x[33] = -7.0f;
  EXPECT_EQ(kernels().largest_magnitude(x.data(), 37), 7.0f);
  EXPECT_EQ(kernels().largest_magnitude(x.data(), 33), 1.0f);
  x[5] = kNaN;
  EXPECT_TRUE(std::isnan(kernels().largest_magnitude(x.data(), 37)));
}

TEST(Levels, NamesAreReadBack) {
  for (const Level level : {Level::kBaseline, Level::kAvx2, Level::kAvx512}) {
    EXPECT_EQ(parse_level(level_name(level)), level);
  }
  EXPECT_EQ(parse_level("sse9"), std::nullopt);
  EXPECT_EQ(supported_levels().front(), Level::kBaseline);
}

}  // namespace
}  // namespace reference::simd
