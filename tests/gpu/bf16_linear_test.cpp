// The BF16 linear of decode against the reference: router logits, the head, and the two absorbed products.
#include "gpu/kernels/bf16_linear.cuh"

#include <gtest/gtest.h>

#include "reference/estimate_call.hpp"
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

// What a launch needs beside x, W and y.
struct Workspace {
  Workspace(Device& device, Stream stream, const Case& c, int num_batches)
      : partial_sums(device, stream, c.num_splits * num_batches * c.num_tokens * c.out_dim, "partial_sums"),
        arrivals(device,
                 stream,
                 std::vector<int32_t>(static_cast<size_t>(linear_num_tiles(c.num_tokens, c.out_dim, num_batches)), 0),
                 "arrivals") {}
  Buffer<float> partial_sums;
  Buffer<int32_t> arrivals;
};

// FP32 out; x has a padding column of NaN behind each row.
std::vector<float> run(const Case& c,
                       const std::vector<half16>& x,
                       const std::vector<half16>& weight,
                       const Options& options) {
  Device device(options);
  const Stream stream = device.create_stream();
  const int64_t x_stride = c.in_dim + 8;
  std::vector<half16> padded(static_cast<size_t>(c.num_tokens * x_stride), half16{0x7FFF});
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    std::copy_n(x.begin() + t * c.in_dim, c.in_dim, padded.begin() + t * x_stride);
  }
  const Buffer<half16> x_buffer(device, stream, padded, "x");
  const Buffer<half16> weight_buffer(device, stream, weight, "weight");
  const Buffer<float> y(device, stream, c.num_tokens * c.out_dim, "y");
  const Workspace space(device, stream, c, 1);
  for (int i = 0; i < 2; ++i) {  // a second launch finds its counters ready
    bf16_linear(stream,
                {.x = x_buffer.data(),
                 .weight = weight_buffer.data(),
                 .y_f32 = y.data(),
                 .partial_sums = space.partial_sums.data(),
                 .arrivals = space.arrivals.data(),
                 .num_tokens = c.num_tokens,
                 .x_stride = x_stride,
                 .y_stride = c.out_dim,
                 .out_dim = c.out_dim,
                 .in_dim = c.in_dim,
                 .num_splits = c.num_splits});
  }
  device.synchronize(stream);
  return y.download();
}

class Bf16LinearKernel : public testing::TestWithParam<Case> {};

TEST_P(Bf16LinearKernel, AgreesWithTheReferencesHead_AndEveryOrderGivesTheSameBits) {
  const Case c = GetParam();
  const auto x = random_bf16(c.num_tokens * c.in_dim, 2, 11);
  const auto weight = random_bf16(c.out_dim * c.in_dim, 0.1f, 12);
  const auto got = run(c, x, weight, {});
  reference::HandMadeOp head;
  head.op.kind = model::OpKind::kHead;
  head.set_weight(view_of({c.out_dim, c.in_dim}, weight));
  const auto expected = reference::estimate_op({.rules = head.rules,
                                                .workload = head.workload,
                                                .weights = head.weights,
                                                .op = head.op,
                                                .inputs = {reference::given(view_of({c.num_tokens, c.in_dim}, x))}});
  ASSERT_EQ(expected.value.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(is_inside(expected, i, got[i]));
  }
  for (const auto& order : kOrders) {
    EXPECT_EQ(run(c, x, weight, {.order = order}), got) << order_name(order);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         Bf16LinearKernel,
                         testing::Values(Case{1, 64, 64, 1},
                                         Case{3, 72, 320, 3},
                                         Case{17, 130, 1032, 4},
                                         Case{33, 8, 72, 1},
                                         Case{70, 64, 200, 2},
                                         // Published: the router; a head's W_UK and W_UV; the logits with N cut to 128.
                                         Case{3, 256, 7168, 8},
                                         Case{3, 512, 128, 1},
                                         Case{3, 128, 512, 1},
                                         Case{2, 128, 7168, 2}));

// With kHopper accumulation, a split's sum is one chain of instructions of 16 products.
TEST(Bf16LinearKernel, TensorCoreAccumulation_IsOneChainOfSteps) {
  using emulation::OperandFormat;
  const Case c{2, 64, 192, 1};
  const auto x = random_bf16(c.num_tokens * c.in_dim, 2, 21);
  const auto weight = random_bf16(c.out_dim * c.in_dim, 1, 22);
  const auto got = run(c, x, weight, {.accumulation = emulation::Accumulation::kHopper});
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    for (int64_t n = 0; n < c.out_dim; ++n) {
      float sum = 0;
      for (int64_t step = 0; step < c.in_dim; step += 16) {
        std::vector<float> a;
        std::vector<float> b;
        for (int64_t k = step; k < step + 16; ++k) {
          a.push_back(model::decode_bf16(weight[static_cast<size_t>(n * c.in_dim + k)].bits));
          b.push_back(model::decode_bf16(x[static_cast<size_t>(t * c.in_dim + k)].bits));
        }
        sum = emulation::tensor_core_step(emulation::kHopper16Bit, OperandFormat::kBf16, a, b, sum);
      }
      ASSERT_EQ(got[static_cast<size_t>(t * c.out_dim + n)], sum) << t << ", " << n;
    }
  }
}

constexpr int kHeads = 3;
constexpr int kNope = 64;
constexpr int kRope = 32;
constexpr int kValue = 72;
constexpr int kLatent = 128;

reference::HandMadeOp absorbed_op(model::OpKind kind, int64_t num_tokens, const std::vector<half16>& kv_b) {
  reference::HandMadeOp op;
  op.op.kind = kind;
  op.workload.sequences = {{0, num_tokens}};
  op.config().num_attention_heads = kHeads;
  op.config().qk_nope_head_dim = kNope;
  op.config().qk_rope_head_dim = kRope;
  op.config().v_head_dim = kValue;
  op.config().kv_lora_rank = kLatent;
  op.set_weight(view_of({kHeads * (kNope + kValue), kLatent}, kv_b));
  return op;
}

class AbsorbedProduct : public testing::TestWithParam<emulation::Order> {
 protected:
  void compare(const reference::HandMadeOp& op, const model::TensorView& input, const std::vector<half16>& got) {
    const auto expected = reference::estimate_op({.rules = op.rules,
                                                  .workload = op.workload,
                                                  .weights = op.weights,
                                                  .op = op.op,
                                                  .inputs = {reference::given(input)}});
    ASSERT_EQ(expected.value.size(), got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(is_inside(expected, i, got[i]));
    }
  }
  Device device{{.order = GetParam()}};
  Stream stream = device.create_stream();
  static constexpr int64_t kTokens = 5;
  std::vector<half16> kv_b = random_bf16(int64_t{kHeads} * (kNope + kValue) * kLatent, 0.2f, 31);
};

// W_UK of each head, transposed: row j holds column j of the head's first kNope rows.
TEST_P(AbsorbedProduct, QueryLatent_ReadsTheFirstPartOfEveryHead) {
  std::vector<half16> w_uk;
  for (int h = 0; h < kHeads; ++h) {
    for (int j = 0; j < kLatent; ++j) {
      for (int n = 0; n < kNope; ++n) {
        w_uk.push_back(kv_b[static_cast<size_t>((h * (kNope + kValue) + n) * kLatent + j)]);
      }
    }
  }
  const auto q = random_bf16(kTokens * kHeads * (kNope + kRope), 2, 32);
  const Buffer<half16> q_buffer(device, stream, q, "q");
  const Buffer<half16> weight(device, stream, w_uk, "w_uk");
  const Buffer<half16> y(device, stream, kTokens * kHeads * kLatent, "q_latent");
  bf16_linear(stream,
              {.x = q_buffer.data(),
               .weight = weight.data(),
               .y_half16 = y.data(),
               .num_tokens = kTokens,
               .x_stride = int64_t{kHeads} * (kNope + kRope),
               .x_batch_stride = kNope + kRope,
               .y_stride = int64_t{kHeads} * kLatent,
               .y_batch_stride = kLatent,
               .out_dim = kLatent,
               .in_dim = kNope,
               .num_batches = kHeads});
  compare(absorbed_op(model::OpKind::kQueryLatent, kTokens, kv_b),
          view_of({kTokens, kHeads * (kNope + kRope)}, q),
          y.download());
}

TEST_P(AbsorbedProduct, Context_IsTheLatentThroughTheLastPartOfEveryHead) {
  std::vector<half16> w_uv;
  for (int h = 0; h < kHeads; ++h) {
    const auto first = kv_b.begin() + int64_t{h * (kNope + kValue) + kNope} * kLatent;
    w_uv.insert(w_uv.end(), first, first + int64_t{kValue} * kLatent);
  }
  const auto latent = random_bf16(kTokens * kHeads * kLatent, 1, 33);
  const Buffer<half16> x(device, stream, latent, "o_latent");
  const Buffer<half16> weight(device, stream, w_uv, "w_uv");
  const Buffer<half16> y(device, stream, kTokens * kHeads * kValue, "context");
  const Case c{kTokens, kValue, kLatent, 2};
  const Workspace space(device, stream, c, kHeads);
  bf16_linear(stream,
              {.x = x.data(),
               .weight = weight.data(),
               .y_half16 = y.data(),
               .partial_sums = space.partial_sums.data(),
               .arrivals = space.arrivals.data(),
               .num_tokens = kTokens,
               .x_stride = int64_t{kHeads} * kLatent,
               .x_batch_stride = kLatent,
               .y_stride = int64_t{kHeads} * kValue,
               .y_batch_stride = kValue,
               .out_dim = kValue,
               .in_dim = kLatent,
               .num_batches = kHeads,
               .num_splits = 2});
  compare(absorbed_op(model::OpKind::kAttentionContext, kTokens, kv_b),
          view_of({kTokens, kHeads, kLatent}, latent),
          y.download());
}

INSTANTIATE_TEST_SUITE_P(Orders, AbsorbedProduct, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
