// The fused residual add, RMSNorm and quantiser against the reference: the stored sum and the codes bit by bit, the norm inside the
// bound that pays for the order of its sum.
#include "gpu/kernels/rms_norm.cuh"

#include <gtest/gtest.h>

#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "reference/quantize.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

struct Case {
  int64_t num_tokens;
  int hidden;
  bool residual;
  ScaleFormat format = ScaleFormat::kFp32;
};

void PrintTo(const Case& c, std::ostream* out) {  // NOLINT(readability-identifier-naming): googletest's name
  *out << c.num_tokens << " x " << c.hidden << (c.residual ? " with residual" : "");
}

struct Result {
  std::vector<half16> sum;
  std::vector<half16> normed;
  std::vector<fp8_e4m3> codes;
  std::vector<float> scales;  // [blocks, stride]
};

constexpr float kEpsilon = 1e-6f;
constexpr int64_t kPaddingTokens = 3;  // of the scales' stride

Result run(const Case& c,
           const Options& options,
           const std::vector<half16>& x,
           const std::vector<half16>& residual,
           const std::vector<half16>& gain) {
  Device device(options);
  const Stream stream = device.create_stream();
  const int64_t size = c.num_tokens * c.hidden;
  const int64_t num_blocks = (c.hidden + kScaleBlockLen - 1) / kScaleBlockLen;
  const int64_t stride = c.num_tokens + kPaddingTokens;
  const Buffer<half16> x_buffer(device, stream, x, "x");
  const Buffer<half16> residual_buffer(device, stream, residual, "residual");
  const Buffer<half16> gain_buffer(device, stream, gain, "gain");
  const Buffer<half16> sum(device, stream, size, "residual_out");
  const Buffer<half16> normed(device, stream, size, "normed");
  const Buffer<fp8_e4m3> codes(device, stream, size, "codes");
  const Buffer<float> scales(device, stream, num_blocks * stride, "scales");
  rms_norm(stream,
           {.x = x_buffer.data(),
            .residual = c.residual ? residual_buffer.data() : nullptr,
            .gain = gain_buffer.data(),
            .residual_out = c.residual ? sum.data() : nullptr,
            .normed = normed.data(),
            .codes = codes.data(),
            .scales = scales.data(),
            .num_tokens = c.num_tokens,
            .x_stride = c.hidden,
            .scale_stride = stride,
            .hidden = c.hidden,
            .epsilon = kEpsilon,
            .scale_format = c.format});
  device.synchronize(stream);
  return {sum.download(), normed.download(), codes.download(), scales.download()};
}

bool same_bytes(const auto& a, const auto& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

class RmsNormKernel : public testing::TestWithParam<Case> {};

TEST_P(RmsNormKernel, AgreesWithTheReference) {
  const Case c = GetParam();
  const auto x = random_bf16(c.num_tokens * c.hidden, 1, 1);
  const auto residual = random_bf16(c.num_tokens * c.hidden, 3, 2);
  const auto gain = random_bf16(c.hidden, 1, 3);
  const Result got = run(c, {}, x, residual, gain);

  reference::HandMadeOp norm;
  norm.op.kind = model::OpKind::kRmsNorm;
  norm.set_weight(view_of({c.hidden}, gain));
  norm.config().rms_norm_eps = kEpsilon;
  const model::Shape shape{c.num_tokens, c.hidden};
  const auto x_view = view_of(shape, x);
  const auto residual_view = view_of(shape, residual);
  std::vector<model::Estimate> inputs{reference::given(x_view)};
  if (c.residual) {
    inputs = {reference::given(x_view), reference::given(x_view), reference::given(residual_view)};
  }
  const auto expected = reference::estimate_op(
      {.rules = norm.rules, .workload = norm.workload, .weights = norm.weights, .op = norm.op, .inputs = inputs});
  ASSERT_EQ(expected.value.size(), got.normed.size());
  for (size_t i = 0; i < got.normed.size(); ++i) {
    const float value = model::decode_bf16(got.normed[i].bits);
    const auto low = reference::round_to_bf16(static_cast<float>(expected.value[i] - expected.error[i]));
    const auto high = reference::round_to_bf16(static_cast<float>(expected.value[i] + expected.error[i]));
    ASSERT_TRUE(value >= low && value <= high)
        << "element " << i << ": " << value << ", expected " << expected.value[i] << " +- " << expected.error[i];
    if (c.residual) {
      const float sum = model::decode_bf16(x[i].bits) + model::decode_bf16(residual[i].bits);
      ASSERT_EQ(got.sum[i].bits, reference::encode_bf16(sum)) << "sum " << i;
    }
  }
  reference::QuantizeRule rule;
  rule.format = c.format == ScaleFormat::kUe8m0 ? model::ScaleFormat::kUe8m0 : model::ScaleFormat::kFp32;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    std::vector<float> row;
    for (int i = 0; i < c.hidden; ++i) {
      row.push_back(model::decode_bf16(got.normed[static_cast<size_t>(t * c.hidden + i)].bits));
    }
    const auto quantized = reference::quantize_row(rule, row);
    for (size_t i = 0; i < row.size(); ++i) {
      ASSERT_EQ(model::decode_f8_e4m3(got.codes[static_cast<size_t>(t * c.hidden) + i].bits), quantized.codes[i])
          << "code " << t << ", " << i;
    }
    for (size_t b = 0; b < quantized.scales.size(); ++b) {
      ASSERT_EQ(got.scales[b * static_cast<size_t>(c.num_tokens + kPaddingTokens) + static_cast<size_t>(t)],
                quantized.scales[b]);
    }
  }
}

TEST_P(RmsNormKernel, EveryOrderGivesTheSameBits) {
  const Case c = GetParam();
  const auto x = random_bf16(c.num_tokens * c.hidden, 1, 1);
  const auto residual = random_bf16(c.num_tokens * c.hidden, 3, 2);
  const auto gain = random_bf16(c.hidden, 1, 3);
  const Result first = run(c, {}, x, residual, gain);
  for (const auto& order : kOrders) {
    const Result got = run(c, {.order = order}, x, residual, gain);
    EXPECT_TRUE(same_bytes(got.normed, first.normed) && same_bytes(got.sum, first.sum) &&
                same_bytes(got.codes, first.codes) && same_bytes(got.scales, first.scales))
        << order_name(order);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         RmsNormKernel,
                         testing::Values(Case{3, 7168, true},
                                         Case{1, 7168, false},
                                         Case{2, 1536, false},
                                         Case{5, 512, true},
                                         Case{2, 256, true, ScaleFormat::kUe8m0},
                                         Case{2, 8, true},
                                         Case{3, 200, true},
                                         Case{2, 8192, false, ScaleFormat::kUe8m0}));

TEST(RmsNormKernel, ZeroRow_IsFinite) {
  const std::vector<half16> zeros(256, half16{0});
  const Result got = run({1, 256, false}, {}, zeros, zeros, random_bf16(256, 1, 1));
  for (const half16 y : got.normed) {
    EXPECT_EQ(y.bits & 0x7FFF, 0);
  }
}

// The padding between rows of scales belongs to nobody.
TEST(RmsNormKernel, ScalesOfAbsentTokens_AreNotWritten) {
  const Result got = run({2, 256, false}, {}, random_bf16(512, 1, 1), random_bf16(512, 1, 2), random_bf16(256, 1, 3));
  for (const size_t i : {2U, 3U, 4U, 7U, 8U, 9U}) {
    EXPECT_TRUE(std::isnan(got.scales[i])) << i;
  }
}

TEST(RmsNormKernel, WidthThatIsNoWholeVector_IsRefused) {
  Device device;
  EXPECT_THROW(rms_norm(device.create_stream(), {.num_tokens = 1, .x_stride = 12, .hidden = 12}), ArgumentError);
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
