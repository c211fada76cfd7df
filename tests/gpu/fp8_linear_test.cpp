// The FP8 linear of decode against the reference, inside the bound that pays for the order of its sums.
#include "gpu/kernels/fp8_linear.cuh"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "reference/estimate_call.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/round.hpp"
#include "reference/quantize.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

struct Case {
  int64_t num_tokens;
  int64_t out_dim;
  int64_t in_dim;
  int num_splits;
};

void PrintTo(const Case& c, std::ostream* out) {  // NOLINT(readability-identifier-naming): googletest's name
  *out << c.num_tokens << " x " << c.out_dim << " x " << c.in_dim << " in " << c.num_splits;
}

struct Problem {
  std::vector<half16> x;
  std::vector<fp8_e4m3> x_codes;
  std::vector<float> x_scales;  // [blocks, num_tokens + 1], the last column NaN
  std::vector<fp8_e4m3> weight;
  std::vector<float> weight_scale;
};

int64_t num_blocks(int64_t length) {
  return (length + kScaleBlockLen - 1) / kScaleBlockLen;
}

Problem make(const Case& c) {
  Problem p;
  p.x = random_bf16(c.num_tokens * c.in_dim, 2, 11);
  auto [codes, scales] = quantized(p.x, c.in_dim, c.num_tokens + 1);
  p.x_codes = std::move(codes);
  p.x_scales = std::move(scales);
  std::mt19937 engine(5);
  std::normal_distribution<float> normal(0, 60);
  std::uniform_real_distribution<float> scale(1e-4f, 3e-4f);
  for (int64_t i = 0; i < c.out_dim * c.in_dim; ++i) {
    p.weight.push_back({reference::encode_f8_e4m3(normal(engine))});
  }
  for (int64_t i = 0; i < num_blocks(c.out_dim) * num_blocks(c.in_dim); ++i) {
    p.weight_scale.push_back(scale(engine));
  }
  return p;
}

std::vector<half16> run(const Case& c, const Problem& p, const Options& options, int num_launches = 1) {
  Device device(options);
  const Stream stream = device.create_stream();
  const Buffer<fp8_e4m3> x(device, stream, p.x_codes, "x");
  const Buffer<float> x_scale(device, stream, p.x_scales, "x_scale");
  const Buffer<fp8_e4m3> weight(device, stream, p.weight, "weight");
  const Buffer<float> weight_scale(device, stream, p.weight_scale, "weight_scale");
  const Buffer<half16> y(device, stream, c.num_tokens * c.out_dim, "y");
  const Buffer<float> partial_sums(device, stream, c.num_splits * c.num_tokens * c.out_dim, "partial_sums");
  const Buffer<int32_t> arrivals(
      device,
      stream,
      std::vector<int32_t>(static_cast<size_t>(linear_num_tiles(c.num_tokens, c.out_dim)), 0),
      "arrivals");
  for (int i = 0; i < num_launches; ++i) {
    fp8_linear(stream,
               {.x = x.data(),
                .x_scale = x_scale.data(),
                .weight = weight.data(),
                .weight_scale = weight_scale.data(),
                .y = y.data(),
                .partial_sums = c.num_splits > 1 ? partial_sums.data() : nullptr,
                .arrivals = c.num_splits > 1 ? arrivals.data() : nullptr,
                .num_tokens = c.num_tokens,
                .x_scale_stride = c.num_tokens + 1,
                .out_dim = c.out_dim,
                .in_dim = c.in_dim,
                .num_splits = c.num_splits});
  }
  device.synchronize(stream);
  EXPECT_EQ(arrivals.download(), std::vector<int32_t>(arrivals.download().size(), 0));
  return y.download();
}

void expect_agreement(const Case& c) {
  const Problem p = make(c);
  const auto got = run(c, p, {}, 2);  // a second launch finds its counters ready

  reference::HandMadeOp linear;
  linear.op.kind = model::OpKind::kLinear;
  std::vector<uint8_t> codes;
  for (const auto code : p.weight) {
    codes.push_back(code.bits);
  }
  linear.set_weight(model::make_tensor(model::DType::kF8E4M3, {c.out_dim, c.in_dim}, std::move(codes)),
                    reference::f32({num_blocks(c.out_dim), num_blocks(c.in_dim)}, p.weight_scale));
  const auto expected = reference::estimate_op({.rules = linear.rules,
                                                .workload = linear.workload,
                                                .weights = linear.weights,
                                                .op = linear.op,
                                                .inputs = {reference::given(view_of({c.num_tokens, c.in_dim}, p.x))}});
  ASSERT_EQ(expected.value.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(is_inside(expected, i, got[i]));
  }
}

class Fp8LinearKernel : public testing::TestWithParam<Case> {};

TEST_P(Fp8LinearKernel, AgreesWithTheReference) {
  expect_agreement(GetParam());
}

TEST_P(Fp8LinearKernel, EveryOrderGivesTheSameBits) {
  const Case c = GetParam();
  const Problem p = make(c);
  const auto first = run(c, p, {});
  for (const auto& order : kOrders) {
    const auto got = run(c, p, {.order = order});
    EXPECT_EQ(std::memcmp(got.data(), first.data(), got.size() * sizeof(half16)), 0) << order_name(order);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         Fp8LinearKernel,
                         testing::Values(Case{1, 64, 128, 1},
                                         Case{3, 72, 256, 2},
                                         Case{17, 130, 1152, 4},
                                         Case{33, 64, 208, 1},
                                         Case{70, 64, 384, 3}));

// K of every FP8 linear of the published model: kv_b, q_b, expert.down, q_a and its like, o_proj, mlp.down. N is cut to two scale
// blocks, which changes how many blocks the grid has and nothing else.
TEST(Fp8LinearKernel, PublishedDepths_AgreeWithTheReference) {
  for (const Case& c : {Case{4, 256, 512, 1},
                        Case{4, 256, 1536, 3},
                        Case{4, 256, 2048, 4},
                        Case{4, 256, 7168, 8},
                        Case{2, 256, 16384, 16},
                        Case{2, 256, 18432, 1}}) {
    expect_agreement(c);
  }
}

// Batch invariance: the first token alone has the bits it has among others.
TEST(Fp8LinearKernel, TokenAlone_HasTheBitsItHasInABatch) {
  const Case c{40, 64, 512, 2};
  Problem p = make(c);
  const auto together = run(c, p, {});
  const Case alone{1, c.out_dim, c.in_dim, c.num_splits};
  Problem first = p;
  first.x_codes.resize(static_cast<size_t>(c.in_dim));
  first.x_scales.clear();
  for (int64_t b = 0; b < num_blocks(c.in_dim); ++b) {
    first.x_scales.push_back(p.x_scales[static_cast<size_t>(b * (c.num_tokens + 1))]);
    first.x_scales.push_back(std::nanf(""));
  }
  const auto single = run(alone, first, {});
  EXPECT_EQ(std::memcmp(single.data(), together.data(), single.size() * sizeof(half16)), 0);
}

// Each 128-block's products in the order of the instructions: two FP16 steps of 16 for each 32, bytes k % 4 < 2 first.
TEST(Fp8LinearKernel, TensorCoreAccumulation_TakesTheInstructionsOrder) {
  using emulation::OperandFormat;
  const Case c{2, 64, 128, 1};
  const Problem p = make(c);
  const auto got = run(c, p, {.accumulation = emulation::Accumulation::kHopper});
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    for (int64_t n = 0; n < c.out_dim; ++n) {
      float sum = 0;
      for (int64_t step = 0; step < c.in_dim; step += 32) {
        for (int half = 0; half < 2; ++half) {
          std::vector<float> a;
          std::vector<float> b;
          for (int64_t k = step; k < step + 32; ++k) {
            if (k % 4 / 2 == half) {
              a.push_back(model::decode_f8_e4m3(p.weight[static_cast<size_t>(n * c.in_dim + k)].bits));
              b.push_back(model::decode_f8_e4m3(p.x_codes[static_cast<size_t>(t * c.in_dim + k)].bits));
            }
          }
          sum = emulation::tensor_core_step(emulation::kHopper16Bit, OperandFormat::kFp16, a, b, sum);
        }
      }
      const float scale = p.x_scales[static_cast<size_t>(t)] * p.weight_scale[0];
      ASSERT_EQ(got[static_cast<size_t>(t * c.out_dim + n)].bits, reference::encode_bf16(sum * scale))
          << t << ", " << n;
    }
  }
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
