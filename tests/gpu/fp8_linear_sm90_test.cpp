// The FP8 linear of prefill by TMA and wgmma: inside the reference's bound, and with the tensor core's arithmetic its recipe bit by bit.
#include "gpu/kernels/fp8_linear_sm90.cuh"

#include <gtest/gtest.h>

#include <bit>

#include "reference/estimate_call.hpp"
#include "reference/tensor_core/recipe.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

struct Case {
  int64_t num_tokens;
  int64_t out_dim;
  int64_t in_dim;
  std::vector<int32_t> group_of_tile = {};  // empty: one group
  std::vector<int32_t> rows_of_tile = {};   // empty: all
  int num_groups = 1;
};

int64_t num_blocks(int64_t length) {
  return (length + kScaleBlockLen - 1) / kScaleBlockLen;
}

struct Problem {
  std::vector<half16> x;
  QuantizedRows rows;
  std::vector<fp8_e4m3> weight;
  std::vector<float> weight_scale;
};

Problem make(const Case& c) {
  Problem p;
  p.x = random_bf16(c.num_tokens * c.in_dim, 2, 11);
  p.rows = quantized(p.x, c.in_dim, c.num_tokens + 1);
  std::mt19937 engine(5);
  std::normal_distribution<float> normal(0, 60);
  std::uniform_real_distribution<float> scale(1e-4f, 3e-4f);
  for (int64_t i = 0; i < c.num_groups * c.out_dim * c.in_dim; ++i) {
    p.weight.push_back({reference::encode_f8_e4m3(normal(engine))});
  }
  for (int64_t i = 0; i < c.num_groups * num_blocks(c.out_dim) * num_blocks(c.in_dim); ++i) {
    p.weight_scale.push_back(scale(engine));
  }
  return p;
}

std::vector<half16> run(const Case& c, const Problem& p, const Options& options) {
  Device device(options);
  const Stream stream = device.create_stream();
  const Buffer<fp8_e4m3> x(device, stream, p.rows.codes, "x");
  const Buffer<float> x_scale(device, stream, p.rows.scales, "x_scale");
  const Buffer<fp8_e4m3> weight(device, stream, p.weight, "weight");
  const Buffer<float> weight_scale(device, stream, p.weight_scale, "weight_scale");
  const Buffer<int32_t> groups(device, stream, c.group_of_tile, "group_of_tile");
  const Buffer<int32_t> counts(device, stream, c.rows_of_tile, "rows_of_tile");
  const Buffer<half16> y(device, stream, c.num_tokens * c.out_dim, "y");
  fp8_linear_sm90(stream,
                  {.x = x.data(),
                   .x_scale = x_scale.data(),
                   .group_of_tile = c.group_of_tile.empty() ? nullptr : groups.data(),
                   .rows_of_tile = c.rows_of_tile.empty() ? nullptr : counts.data(),
                   .weight = weight.data(),
                   .weight_scale = weight_scale.data(),
                   .y = y.data(),
                   .num_tokens = c.num_tokens,
                   .x_scale_stride = c.num_tokens + 1,
                   .out_dim = c.out_dim,
                   .in_dim = c.in_dim,
                   .num_groups = c.num_groups});
  device.synchronize(stream);
  return y.download();
}

// Rows [first, first + count) of y against group `group`.
void expect_agreement(
    const Case& c, const Problem& p, const std::vector<half16>& got, int64_t first, int64_t count, int group) {
  reference::HandMadeOp op;
  op.op.kind = model::OpKind::kLinear;
  const int64_t scales = num_blocks(c.out_dim) * num_blocks(c.in_dim);
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < c.out_dim * c.in_dim; ++i) {
    codes.push_back(p.weight[static_cast<size_t>(group * c.out_dim * c.in_dim + i)].bits);
  }
  op.set_weight(
      model::make_tensor(model::DType::kF8E4M3, {c.out_dim, c.in_dim}, std::move(codes)),
      reference::f32({num_blocks(c.out_dim), num_blocks(c.in_dim)},
                     {p.weight_scale.begin() + group * scales, p.weight_scale.begin() + (group + 1) * scales}));
  const auto rows =
      view_of({count, c.in_dim}, {p.x.begin() + first * c.in_dim, p.x.begin() + (first + count) * c.in_dim});
  const auto expected = reference::estimate_op({.rules = op.rules,
                                                .workload = op.workload,
                                                .weights = op.weights,
                                                .op = op.op,
                                                .inputs = {reference::given(rows)}});
  for (size_t i = 0; i < expected.value.size(); ++i) {
    ASSERT_TRUE(is_inside(expected, i, got[static_cast<size_t>(first * c.out_dim) + i]));
  }
}

const std::vector<Case> kShapes = {{64, 128, 128}, {70, 264, 384}, {5, 133, 208}, {130, 128, 1152}};

class Fp8LinearSm90 : public testing::TestWithParam<emulation::Order> {};

TEST_P(Fp8LinearSm90, AgreesWithTheReference) {
  for (const Case& c : kShapes) {
    const Problem p = make(c);
    const auto got = run(c, p, {.order = GetParam()});
    expect_agreement(c, p, got, 0, c.num_tokens, 0);
    EXPECT_EQ(std::memcmp(got.data(), run(c, p, {}).data(), got.size() * sizeof(half16)), 0);
  }
}

// Tile 0 and 3 are expert 2's, tile 2 expert 0's and not full; tile 1 is padding and stays as allocated. Codes and scales of padding are
// NaN.
TEST_P(Fp8LinearSm90, GroupsOfRows_TakeTheirExpertsWeights) {
  const Case c{.num_tokens = 200,
               .out_dim = 136,
               .in_dim = 256,
               .group_of_tile = {2, -1, 0, 2},
               .rows_of_tile = {64, 0, 50, 64},
               .num_groups = 3};
  Problem p = make(c);
  std::fill_n(p.rows.codes.begin() + 64 * c.in_dim, 64 * c.in_dim, fp8_e4m3{0x7F});
  for (int64_t block = 0; block < num_blocks(c.in_dim); ++block) {
    std::fill_n(p.rows.scales.begin() + block * (c.num_tokens + 1) + 64, 64, std::nanf(""));
  }
  const auto got = run(c, p, {.order = GetParam()});
  expect_agreement(c, p, got, 0, 64, 2);
  expect_agreement(c, p, got, 128, 50, 0);
  expect_agreement(c, p, got, 192, 8, 2);
  for (const auto& [first, end] : {std::pair{64, 128}, {178, 192}}) {
    for (int64_t i = first * c.out_dim; i < end * c.out_dim; ++i) {
      ASSERT_EQ(got[static_cast<size_t>(i)].bits, 0xFFFF);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, Fp8LinearSm90, testing::ValuesIn(kOrders));

// The reference's recipe `hopper`: wgmma's steps over each 128 products from zero, promoted by one multiply-add.
TEST(Fp8LinearSm90Bits, WithTheTensorCoresArithmetic_AreTheRecipes) {
  namespace tc = reference::tensor_core;
  const tc::Recipe& recipe = tc::find_recipe("hopper");
  ASSERT_EQ(recipe.promotion.form, tc::Promotion::Form::kFusedScalesFirst);
  const tc::Path& wgmma = *tc::paths_for(recipe, tc::Format::kE4m3)[0];
  const Case c{3, 136, 400};
  const Problem p = make(c);
  const auto got = run(c, p, {.accumulation = emulation::Accumulation::kHopper});
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    for (int64_t n = 0; n < c.out_dim; ++n) {
      float total = 0;
      for (int64_t block = 0; block < num_blocks(c.in_dim); ++block) {
        std::vector<uint32_t> a(128, 0);
        std::vector<uint32_t> b(128, 0);
        for (int64_t k = block * 128; k < std::min(c.in_dim, block * 128 + 128); ++k) {
          a[static_cast<size_t>(k % 128)] = p.rows.codes[static_cast<size_t>(t * c.in_dim + k)].bits;
          b[static_cast<size_t>(k % 128)] = p.weight[static_cast<size_t>(n * c.in_dim + k)].bits;
        }
        const auto product = std::bit_cast<float>(tc::path_dot(wgmma, tc::Format::kE4m3, a, b, 0));
        const float scale = p.rows.scales[static_cast<size_t>(block * (c.num_tokens + 1) + t)] *
                            p.weight_scale[static_cast<size_t>(n / 128 * num_blocks(c.in_dim) + block)];
        total = std::fma(scale, product, total);
      }
      ASSERT_EQ(got[static_cast<size_t>(t * c.out_dim + n)].bits, reference::encode_bf16(total)) << t << ", " << n;
    }
  }
}

// The bytes that a stage waits for are those of the rows there are: every size of the only tile, and one row more.
TEST(Fp8LinearSm90Bits, OfEveryNumberOfTokensUpToATileAndOne_AreThoseOfTheLargest) {
  const Case largest{65, 8, 128};
  const Problem p = make(largest);
  const auto expected = run(largest, p, {});
  for (Case c = largest; c.num_tokens > 0; --c.num_tokens) {
    Problem first = p;
    first.x.resize(static_cast<size_t>(c.num_tokens * c.in_dim));
    first.rows = quantized(first.x, c.in_dim, c.num_tokens + 1);
    const auto got = run(c, first, {});
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(half16)), 0) << c.num_tokens << " tokens";
  }
}

TEST(Fp8LinearSm90Bits, OfATokenAlone_AreThoseItHasInABatch) {
  const Case c{70, 128, 256};
  const Problem p = make(c);
  const auto together = run(c, p, {});
  Case one = c;
  one.num_tokens = 1;
  Problem alone = p;
  alone.x.resize(static_cast<size_t>(c.in_dim));
  alone.rows = quantized(alone.x, c.in_dim, 2);
  const auto got = run(one, alone, {});
  EXPECT_EQ(std::memcmp(got.data(), together.data(), got.size() * sizeof(half16)), 0);
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
