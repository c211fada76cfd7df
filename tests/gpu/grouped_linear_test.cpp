// The routed experts' linears: rows of each expert found on the device, gathered by the first linear, in place for the second.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>

#include "gpu/kernels/align.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "reference/estimate_call.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int64_t kTokens = 20;
constexpr int kTopK = 3;
constexpr int kExperts = 6;
constexpr int64_t kIn = 272;
constexpr int64_t kOut = 72;
constexpr int kSplits = 2;

// Expert 0 is everybody's, expert 5 nobody's; token 7 is padding.
std::vector<int32_t> routing() {
  std::vector<int32_t> ids;
  for (int t = 0; t < kTokens; ++t) {
    const std::vector<int32_t> chosen{1 + t % 4, 0, 1 + (t + 1 + t / 4 % 3) % 4};
    ids.insert(ids.end(), chosen.begin(), chosen.end());
  }
  std::fill_n(ids.begin() + 7 * kTopK, kTopK, -1);
  return ids;
}

std::vector<int32_t> tokens_of(const std::vector<int32_t>& ids, int expert) {
  std::vector<int32_t> tokens;
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    if (ids[slot] == expert) {
      tokens.push_back(static_cast<int32_t>(slot) / kTopK);
    }
  }
  return tokens;
}

class GroupedLinear : public testing::TestWithParam<emulation::Order> {
 protected:
  GroupedLinear() {
    std::mt19937 engine(5);
    std::normal_distribution<float> normal(0, 60);
    for (int64_t i = 0; i < kExperts * kOut * kIn; ++i) {
      codes.push_back({reference::encode_f8_e4m3(normal(engine))});
    }
    for (int i = 0; i < kExperts * kBlocks; ++i) {
      scales.push_back(1e-4f + 1e-5f * static_cast<float>(i));
    }
    align(stream,
          {.topk_ids = ids_buffer.data(),
           .token_of_row = token_of_row.data(),
           .num_valid = num_valid.data(),
           .row_of_slot = row_of_slot.data(),
           .num_tokens = kTokens,
           .num_experts = kExperts,
           .k = kTopK});
    device.synchronize(stream);
  }

  // Rows of got belong to x's rows `tokens`; the rest of the expert's rows are as allocated.
  void compare(int expert,
               const std::vector<half16>& x,
               const std::vector<int32_t>& tokens,
               const std::vector<half16>& got) {
    const auto first = got.begin() + expert * kTokens * kOut;
    const auto num_rows = static_cast<int64_t>(tokens.size());
    for (int64_t i = num_rows * kOut; i < kTokens * kOut; ++i) {
      ASSERT_EQ(first[i].bits, 0xFFFF) << "a row that does not exist was written";
    }
    if (tokens.empty()) {
      return;
    }
    std::vector<half16> rows;
    for (const int32_t token : tokens) {
      rows.insert(rows.end(), x.begin() + token * kIn, x.begin() + (token + 1) * kIn);
    }
    std::vector<uint8_t> weight;
    for (int64_t i = 0; i < kOut * kIn; ++i) {
      weight.push_back(codes[static_cast<size_t>(expert * kOut * kIn + i)].bits);
    }
    reference::HandMadeOp op;
    op.op.kind = model::OpKind::kLinear;
    op.set_weight(
        model::make_tensor(model::DType::kF8E4M3, {kOut, kIn}, std::move(weight)),
        reference::f32({1, kBlocks}, {scales.begin() + expert * kBlocks, scales.begin() + (expert + 1) * kBlocks}));
    const auto expected = reference::estimate_op({.rules = op.rules,
                                                  .workload = op.workload,
                                                  .weights = op.weights,
                                                  .op = op.op,
                                                  .inputs = {reference::given(view_of({num_rows, kIn}, rows))}});
    for (size_t i = 0; i < expected.value.size(); ++i) {
      ASSERT_TRUE(is_inside(expected, i, first[static_cast<int64_t>(i)])) << "expert " << expert;
    }
  }

  Fp8LinearArguments arguments() {
    return {.num_valid = num_valid.data(),
            .weight = weight_buffer().data(),
            .weight_scale = scale_buffer().data(),
            .y = y.data(),
            .partial_sums = partial_sums.data(),
            .arrivals = arrivals.data(),
            .num_tokens = kTokens,
            .out_dim = kOut,
            .in_dim = kIn,
            .num_groups = kExperts,
            .num_splits = kSplits};
  }

  static constexpr int kBlocks = 3;
  Device device{{.order = GetParam()}};
  Stream stream = device.create_stream();
  std::vector<int32_t> ids = routing();
  std::vector<fp8_e4m3> codes;
  std::vector<float> scales;
  Buffer<int32_t> ids_buffer{device, stream, ids, "topk_ids"};
  Buffer<int32_t> token_of_row{device, stream, kExperts* kTokens, "token_of_row"};
  Buffer<int32_t> num_valid{device, stream, kExperts, "num_valid"};
  Buffer<int32_t> row_of_slot{device, stream, std::vector<int32_t>(kTokens* kTopK, -7), "row_of_slot"};
  Buffer<half16> y{device, stream, kExperts* kTokens* kOut, "y"};
  Buffer<float> partial_sums{device, stream, kSplits* kExperts* kTokens* kOut, "partial_sums"};
  Buffer<int32_t> arrivals{device,
                           stream,
                           std::vector<int32_t>(static_cast<size_t>(linear_num_tiles(kTokens, kOut, kExperts)), 0),
                           "arrivals"};

 private:
  const Buffer<fp8_e4m3>& weight_buffer() {
    weight_.emplace(device, stream, codes, "weight");
    return *weight_;
  }
  const Buffer<float>& scale_buffer() {
    scale_.emplace(device, stream, scales, "weight_scale");
    return *scale_;
  }
  std::optional<Buffer<fp8_e4m3>> weight_;
  std::optional<Buffer<float>> scale_;
};

TEST_P(GroupedLinear, Align_ListsEachExpertsTokensAscending) {
  const auto counts = num_valid.download();
  const auto tokens = token_of_row.download();
  const auto rows = row_of_slot.download();
  for (int expert = 0; expert < kExperts; ++expert) {
    const auto expected = tokens_of(ids, expert);
    ASSERT_EQ(counts[static_cast<size_t>(expert)], static_cast<int32_t>(expected.size()));
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), tokens.begin() + expert * kTokens)) << expert;
  }
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    if (ids[slot] < 0) {
      EXPECT_EQ(rows[slot], -7);
    } else {
      EXPECT_EQ(rows[slot] / kTokens, ids[slot]);
      EXPECT_EQ(tokens[static_cast<size_t>(rows[slot])], static_cast<int32_t>(slot) / kTopK);
    }
  }
}

// gate and up: x is one row a token, the padding token's NaN.
TEST_P(GroupedLinear, GatheredRows_AgreeWithTheReference) {
  auto x = random_bf16(kTokens * kIn, 2, 11);
  const auto [x_codes, x_scales] = quantized(x, kIn, kTokens + 3);
  auto poisoned = x_codes;
  std::fill_n(poisoned.begin() + 7 * kIn, kIn, fp8_e4m3{0x7F});
  const Buffer<fp8_e4m3> x_buffer(device, stream, poisoned, "x");
  const Buffer<float> x_scale(device, stream, x_scales, "x_scale");
  auto call = arguments();
  call.x = x_buffer.data();
  call.x_scale = x_scale.data();
  call.x_scale_stride = kTokens + 3;
  call.token_of_row = token_of_row.data();
  fp8_linear(stream, call);
  const auto got = y.download();
  for (int expert = 0; expert < kExperts; ++expert) {
    compare(expert, x, tokens_of(ids, expert), got);
  }
}

// down: each expert's own rows, NaN behind the valid ones.
TEST_P(GroupedLinear, OwnRows_AgreeWithTheReference) {
  std::vector<fp8_e4m3> x_codes(kExperts * kTokens * kIn, fp8_e4m3{0x7F});
  std::vector<float> x_scales;
  std::vector<std::vector<half16>> x_of;
  for (int expert = 0; expert < kExperts; ++expert) {
    const auto num_rows = static_cast<int64_t>(tokens_of(ids, expert).size());
    x_of.push_back(random_bf16(num_rows * kIn, 2, static_cast<uint32_t>(40 + expert)));
    const auto of_expert = quantized(x_of.back(), kIn, kTokens);
    std::copy(of_expert.codes.begin(), of_expert.codes.end(), x_codes.begin() + expert * kTokens * kIn);
    x_scales.insert(x_scales.end(), of_expert.scales.begin(), of_expert.scales.end());
  }
  const Buffer<fp8_e4m3> x_buffer(device, stream, x_codes, "x");
  const Buffer<float> x_scale(device, stream, x_scales, "x_scale");
  auto call = arguments();
  call.x = x_buffer.data();
  call.x_scale = x_scale.data();
  call.x_scale_stride = kTokens;
  fp8_linear(stream, call);
  const auto got = y.download();
  for (int expert = 0; expert < kExperts; ++expert) {
    std::vector<int32_t> rows(tokens_of(ids, expert).size());
    std::iota(rows.begin(), rows.end(), 0);
    compare(expert, x_of[static_cast<size_t>(expert)], rows, got);
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, GroupedLinear, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
