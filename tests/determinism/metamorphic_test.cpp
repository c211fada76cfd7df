// Changes of a linear's input that must leave its bits alone, or change them in one known way, in every mode of fixed bits. (Batches,
// chunks, caches and decode steps of whole passes: tests/reference/same_bits_test.cpp. Products inside one step:
// tests/reference/tensor_core_step_test.cpp.)
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/determinism/bits.hpp"
#include "tests/reference/hand_made.hpp"

namespace determinism {
namespace {

using reference::HandMadeOp;
using reference::LinearSum;

constexpr int64_t kRows = 5;
constexpr int64_t kOut = 40;
constexpr int64_t kLen = 256;  // two blocks of K

using Numbers = std::vector<float>;

// BF16 numbers of both signs over eight powers of two.
Numbers random_rows(uint32_t seed) {
  std::mt19937 random(seed);
  Numbers x;
  for (int64_t i = 0; i < kRows * kLen; ++i) {
    const uint32_t bits = random();
    x.push_back(std::bit_cast<float>((bits & 0x80000000U) | (120 + bits % 8) << 23 | (bits & 0x7F0000U)));
  }
  return x;
}

// E4M3 numbers whose double and half are normal numbers as well.
Numbers random_weights(uint32_t seed) {
  std::mt19937 random(seed);
  Numbers w;
  for (int64_t i = 0; i < kOut * kLen; ++i) {
    const uint32_t bits = random();
    w.push_back(
        model::decode_f8_e4m3(static_cast<uint8_t>((bits >> 24 & 0x80) | (4 + bits % 6) << 3 | (bits >> 8 & 7))));
  }
  return w;
}

struct Linear {
  Numbers x = random_rows(1);
  Numbers w = random_weights(2);
  Numbers scales{0x1.8p-3f, 0x1.2p-4f};
  int64_t num_rows = kRows;
  int64_t len = kLen;

  // [num_rows, kOut]
  [[nodiscard]] std::vector<double> run(const reference::Rules& rules) const {
    HandMadeOp op;
    op.op.kind = model::OpKind::kLinear;
    op.rules = rules;
    op.set_weight(reference::f8({kOut, len}, w), reference::f32({1, (len + 127) / 128}, scales));
    return reference::numbers(op.run({reference::bf16({num_rows, len}, x)}));
  }
};

// Element k of every row of a matrix is element order[k] of the other.
Numbers with_columns(const Numbers& matrix, const std::vector<int64_t>& order) {
  Numbers result;
  for (size_t row = 0; row < matrix.size(); row += order.size()) {
    for (const int64_t k : order) {
      result.push_back(matrix[row + static_cast<size_t>(k)]);
    }
  }
  return result;
}

class Metamorphic : public ::testing::TestWithParam<Mode> {
 protected:
  [[nodiscard]] static const reference::Rules& rules() { return GetParam().rules; }
  [[nodiscard]] static bool has_steps() { return rules().linear_sum == LinearSum::kTensorCore; }
};

TEST_P(Metamorphic, RowsInAnotherOrder_GiveTheSameRows) {
  const Linear linear;
  const auto expected = linear.run(rules());
  Linear reversed = linear;
  for (int64_t m = 0; m < kRows; ++m) {
    std::copy_n(linear.x.begin() + m * kLen, kLen, reversed.x.begin() + (kRows - 1 - m) * kLen);
  }
  const auto got = reversed.run(rules());
  for (int64_t m = 0; m < kRows; ++m) {
    EXPECT_TRUE(std::equal(
        expected.begin() + m * kOut, expected.begin() + (m + 1) * kOut, got.begin() + (kRows - 1 - m) * kOut))
        << m;
  }
}

TEST_P(Metamorphic, ARowAlone_IsTheRowInABatch) {
  const Linear linear;
  const auto expected = linear.run(rules());
  for (int64_t m = 0; m < kRows; ++m) {
    Linear alone = linear;
    alone.num_rows = 1;
    alone.x.assign(linear.x.begin() + m * kLen, linear.x.begin() + (m + 1) * kLen);
    EXPECT_TRUE(
        std::ranges::equal(alone.run(rules()), std::span(expected).subspan(static_cast<size_t>(m * kOut), kOut)))
        << m;
  }
}

TEST_P(Metamorphic, RowsOfZeros_ChangeNothingAndGiveZeros) {
  Linear padded;
  const auto expected = padded.run(rules());
  padded.num_rows += 3;
  padded.x.resize(static_cast<size_t>(padded.num_rows * kLen), 0.0f);
  const auto got = padded.run(rules());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin()));
  EXPECT_TRUE(std::all_of(got.begin() + kRows * kOut, got.end(), [](double value) { return value == 0; }));
}

TEST_P(Metamorphic, ABlockOfZerosBehindTheRows_ChangesNothing) {
  const Linear linear;
  Linear padded = linear;
  padded.len += 128;
  padded.scales.push_back(0.5f);
  const auto pad = [&](const Numbers& matrix, float value) {
    Numbers result;
    for (size_t row = 0; row < matrix.size(); row += kLen) {
      result.insert(
          result.end(), matrix.begin() + static_cast<int64_t>(row), matrix.begin() + static_cast<int64_t>(row) + kLen);
      result.insert(result.end(), 128, value);
    }
    return result;
  };
  padded.x = pad(linear.x, 0.0f);
  padded.w = pad(linear.w, 3.5f);
  EXPECT_EQ(padded.run(rules()), linear.run(rules()));
}

TEST_P(Metamorphic, NegatedRows_GiveNegatedResults) {
  Linear linear;
  auto expected = linear.run(rules());
  std::ranges::transform(expected, expected.begin(), std::negate());
  std::ranges::transform(linear.x, linear.x.begin(), std::negate());
  EXPECT_EQ(linear.run(rules()), expected);  // 0 and -0 are equal here: what cancels is +0 either way
}

TEST_P(Metamorphic, DoubledCodesWithHalvedScales_GiveTheSameBits) {
  const Linear linear;
  for (const float factor : {2.0f, 0.5f}) {
    Linear scaled = linear;
    scaled.scales[1] /= factor;
    for (size_t i = 0; i < scaled.w.size(); ++i) {
      scaled.w[i] *= i % kLen < 128 ? 1.0f : factor;
    }
    EXPECT_EQ(scaled.run(rules()), linear.run(rules())) << factor;
  }
}

// A step knows no order, so neighbours may change places; the written order joins lanes k and k + 8 by one addition, so these may.
TEST_P(Metamorphic, ProductsThatMayChangePlaces_GiveTheSameBits) {
  std::vector<int64_t> order(kLen);
  std::iota(order.begin(), order.end(), 0);
  const size_t apart = has_steps() ? 1 : 8;
  for (size_t k = 0; k < kLen; ++k) {
    order[k] = static_cast<int64_t>(k ^ apart);
  }
  const Linear linear;
  Linear permuted = linear;
  permuted.x = with_columns(linear.x, order);
  permuted.w = with_columns(linear.w, order);
  EXPECT_EQ(permuted.run(rules()), linear.run(rules()));
}

model::ModelConfig quantised_config() {
  model::ModelConfig config;
  config.quantization.emplace();
  return config;
}

INSTANTIATE_TEST_SUITE_P(Modes,
                         Metamorphic,
                         ::testing::ValuesIn(modes_of(quantised_config())),
                         [](const auto& instance) {
                           std::string name = instance.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The other side of that: products that a step boundary separates may not change places. 448 and -448 cancel, and in their step
// nothing below 2^(8 - 13) is left of the others, which are 2^-6; in a step of their own all 30 of them count.
TEST(MetamorphicBoundary, ProductsOfDifferentSteps_MayNotChangePlaces) {
  const auto modes = modes_of(quantised_config());
  const auto result = [&](std::string_view mode, int64_t first) {
    Linear linear;
    linear.num_rows = 1;
    linear.x.assign(kLen, 0.0f);
    linear.w.assign(kOut * kLen, 1.0f);
    linear.scales = {1, 1};
    linear.x[0] = 448;
    linear.x[1] = -448;
    std::fill_n(linear.x.begin() + first, 30, 0x1p-6f);
    return linear.run(std::ranges::find(modes, mode, &Mode::name)->rules).front();
  };
  EXPECT_EQ(result("hopper", 2), 0);
  EXPECT_EQ(result("hopper", 32), 30 * 0x1p-6);
  EXPECT_EQ(result("v32", 2), 30 * 0x1p-6);
  EXPECT_EQ(result("v32", 32), 30 * 0x1p-6);
}

}  // namespace
}  // namespace determinism
