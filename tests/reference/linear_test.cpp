#include "reference/ops/linear.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp linear_op(Gemm gemm = Gemm::kFp8) {
  HandMadeOp linear;
  linear.op.kind = model::OpKind::kLinear;
  linear.rules.gemm = gemm;
  return linear;
}

// `len` numbers, zero but at the given places.
std::vector<float> sparse(size_t len, const std::map<size_t, float>& places) {
  std::vector<float> values(len, 0.0f);
  for (const auto& [i, value] : places) {
    values[i] = value;
  }
  return values;
}

// x = 0.5: s = 0.5 * FP32(1/448), code 448. Weight 32 * 1124/4096. By an FP32 calculator: 448 * 32 * (sA * sB) =
// 0x1.190002p+2, past the BF16 tie 0x1.19p+2, so 4.40625; (448 * 32 * sA) * sB would be the tie itself and go to 4.375.
TEST(LinearFp8, ScalesAreMultipliedFirst) {
  auto linear = linear_op();
  linear.set_weight(f8({1, 1}, {32}), f32({1, 1}, {1124.0f / 4096}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 1}, {0.5f})})), Numbers{4.40625});
}

// amax 448 in both blocks: activation scales are 1. Elements 127 and 128 meet weight scales 1 and 4: 448 + 4 * 448 =
// 2240, a BF16 number (steps of 16).
TEST(LinearFp8, BlockBoundary_LiesAfter128Columns) {
  auto linear = linear_op();
  linear.set_weight(f8({1, 256}, std::vector<float>(256, 1)), f32({1, 2}, {1, 4}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 256}, sparse(256, {{127, 448}, {128, 448}}))})), Numbers{2240});
}

// The first block has amax 448 and loses the element 2^-10 (half of the smallest code, to even); the second block,
// whose amax is 2^-10, keeps it: s = 2^-10 * FP32(1/448), code 448, and 448 * s = 2^-10 up to FP32 rounding, so
// BF16(2^-10).
TEST(LinearFp8, ActivationBlocks_HaveTheirOwnScales) {
  auto linear = linear_op();
  linear.set_weight(f8({1, 256}, sparse(256, {{1, 1}, {128, 1}})), f32({1, 2}, {1, 1}));
  EXPECT_EQ(
      numbers(linear.run({bf16({2, 256}, sparse(512, {{0, 448}, {1, 0x1p-10f}, {256, 448}, {256 + 128, 0x1p-10f}}))})),
      (Numbers{0, 0x1p-10}));
}

// K = 200: the second block has 72 columns and its own scales. 448 * 1 + 448 * 2 * 8 = 7616 -> BF16 steps of 32: 7616.
TEST(LinearFp8, RaggedColumns_UseTheLastScale) {
  auto linear = linear_op();
  linear.set_weight(f8({1, 200}, sparse(200, {{0, 1}, {199, 2}})), f32({1, 2}, {1, 8}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 200}, sparse(200, {{0, 448}, {199, 448}}))})), Numbers{7616});
}

// 130 rows: rows 128 and 129 belong to the second row of the scale grid.
TEST(LinearFp8, RaggedRows_UseTheLastScale) {
  auto linear = linear_op();
  linear.set_weight(f8({130, 1}, std::vector<float>(130, 1)), f32({2, 1}, {1, 0.5f}));
  const auto y = numbers(linear.run({bf16({1, 1}, {448})}));
  EXPECT_EQ(y[127], 448);
  EXPECT_EQ(y[128], 224);
  EXPECT_EQ(y[129], 224);
}

// E8M0 code 129 is 2^(129 - 127) = 4.
TEST(LinearFp8, ScalesMayBePowersOfTwo) {
  auto linear = linear_op();
  linear.set_weight(f8({1, 1}, {1}), model::make_tensor(model::DType::kF8E8M0, {1, 1}, std::vector<uint8_t>{129}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 1}, {448})})), Numbers{1792});
}

TEST(LinearFp8, WeightWithoutScale_IsAnInputError) {
  auto linear = linear_op();
  linear.set_weight(f8({1, 1}, {1}));
  EXPECT_THROW((void)linear.run({bf16({1, 1}, {1})}), model::InputError);
}

// Code 1.125 times scale 129/128 = 145.125/128, in BF16 145/128; code 1 gives 129/128. x = (1, -1): 16/128.
// Without the rounding: 0.125 * 129/128 = 0.1259765625, a BF16 number.
TEST(LinearBf16, Fp8Weights_AreDequantisedToBf16) {
  auto linear = linear_op(Gemm::kBf16);
  linear.set_weight(f8({1, 2}, {1.125f, 1}), f32({1, 1}, {129.0f / 128}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 2}, {1, -1})})), Numbers{0.125});
  linear.rules = exact_rules();
  EXPECT_EQ(numbers(linear.run({f64({1, 2}, {1, -1})})), Numbers{0.1259765625});
}

// A BF16 weight never meets quantised activations: 129/2048 beside 1 would have become the code 28, 0.0625.
TEST(LinearBf16, Bf16Weights_KeepTheActivations) {
  auto linear = linear_op(Gemm::kFp8);
  linear.set_weight(bf16({1, 2}, {0, 1}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 2}, {1, 129.0f / 2048})})), Numbers{129.0 / 2048});
}

// The same numbers with an FP8 weight: s = FP32(1/448), x / s = 28.22, between 28 and 30: 28 / 448 = 0.0625.
TEST(LinearFp8, Fp8Weights_MeetQuantisedActivations) {
  auto linear = linear_op(Gemm::kFp8);
  linear.set_weight(f8({1, 2}, {0, 1}), f32({1, 1}, {1}));
  EXPECT_EQ(numbers(linear.run({bf16({1, 2}, {1, 129.0f / 2048})})), Numbers{0.0625});
}

// 1.125 * 0x1.555556p-2 = 0x1.800000cp-2, which FP32 (steps of 0x0.000002p-2) rounds to 0x1.8p-2.
TEST(LinearExact, Weight_IsTheFp32ProductOfCodeAndScale) {
  auto linear = linear_op();
  linear.rules = exact_rules();
  const float scale = 0x1.555556p-2f;
  linear.set_weight(f8({1, 1}, {1.125f}), f32({1, 1}, {scale}));
  const auto y = linear.run({f64({1, 1}, {1})});
  EXPECT_EQ(y.dtype, model::DType::kF64);
  EXPECT_EQ(numbers(y), Numbers{0x1.8p-2});
  EXPECT_NE(numbers(y)[0], 1.125 * static_cast<double>(scale));
}

// Tokens 0, 2 and 3 chose expert 2, in whatever slot.
TEST(LinearExpert, RowsOfItsTokens_AreGatheredInOrder) {
  auto linear = linear_op();
  linear.op.expert = 2;
  linear.set_weight(bf16({1, 1}, {3}));
  const auto y = linear.run({bf16({4, 1}, {1, 10, 4, 7}), i32({4, 2}, {2, 0, 0, 1, 1, 2, 2, 3})});
  EXPECT_EQ(y.shape, (model::Shape{3, 1}));
  EXPECT_EQ(numbers(y), (Numbers{3, 12, 21}));
}

// kv_b reads the latent and not the rotated key that follows it in a row of the cache.
TEST(Linear, LongerRows_AreReadUpToTheWidthOfTheWeight) {
  for (const auto gemm : {Gemm::kFp8, Gemm::kBf16}) {
    auto linear = linear_op(gemm);
    linear.set_weight(f8({1, 2}, {1, 1}), f32({1, 1}, {1}));
    EXPECT_EQ(numbers(linear.run({bf16({2, 3}, {448, 448, kNaN, 448, 224, kNaN})})), (Numbers{896, 672}));
  }
}

TEST(Linear, NanInARow_StaysInThatRow) {
  for (const auto gemm : {Gemm::kFp8, Gemm::kBf16}) {
    auto linear = linear_op(gemm);
    linear.set_weight(f8({1, 2}, {1, 1}), f32({1, 1}, {1}));
    const auto y = numbers(linear.run({bf16({3, 2}, {448, 448, 448, kNaN, 448, 224})}));
    EXPECT_EQ(y[0], 896);
    EXPECT_TRUE(std::isnan(y[1]));
    EXPECT_EQ(y[2], 672);
  }
}

TEST(Linear, RowsShorterThanTheWeight_Throw) {
  auto linear = linear_op();
  linear.set_weight(bf16({1, 2}, {1, 1}));
  EXPECT_THROW((void)linear.run({bf16({1, 1}, {1})}), model::CheckError);
}

// [enorm; hnorm] W: token 0: 1 * 1 + 2 * 10 + 3 * 100 + 4 * 1000 = 4321 -> BF16 steps of 32: 4320.
TEST(MtpConcat, EmbeddingComesFirst) {
  auto linear = linear_op();
  linear.op.kind = model::OpKind::kMtpConcat;
  linear.set_weight(bf16({1, 4}, {1, 10, 100, 1000}));
  EXPECT_EQ(numbers(linear.run({bf16({2, 2}, {1, 2, 0, 1}), bf16({2, 2}, {3, 4, 1, 0})})), (Numbers{4320, 110}));
}

}  // namespace
}  // namespace reference
