// RoPE and the write into the paged latent cache, against the reference.
#include "gpu/kernels/cache_latent.cuh"

#include <gtest/gtest.h>

#include "reference/estimate_call.hpp"
#include "reference/numerics/round.hpp"
#include "reference/rope.hpp"
#include "tests/gpu/fp8_rows.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int kHeads = 3;
constexpr int kNope = 24;
constexpr int kNumPositions = 1100;

// Two sequences: one token at position 1000, then a new one of two tokens.
reference::HandMadeOp attention_op(model::OpKind kind, int kv_lora, int rope) {
  reference::HandMadeOp op;
  op.op.kind = kind;
  op.op.layer = 0;
  op.workload.sequences = {{1000, 1}, {0, 2}};
  auto& config = op.config();
  config.num_hidden_layers = 1;
  config.num_attention_heads = kHeads;
  config.qk_nope_head_dim = kNope;
  config.qk_rope_head_dim = rope;
  config.kv_lora_rank = kv_lora;
  config.rope_theta = 10000;
  config.rms_norm_eps = 1e-6;
  return op;
}

std::vector<float> turns_of(const model::ModelConfig& config) {
  reference::RotationTable table(config, reference::FrequencyOrder::kOfficial);
  std::vector<float> turns;
  for (int64_t position = 0; position < kNumPositions; ++position) {
    for (const auto& turn : table.at(position)) {
      turns.insert(turns.end(), {turn.cos, turn.sin});
    }
  }
  return turns;
}

class LatentKernel : public testing::TestWithParam<emulation::Order> {
 protected:
  Device device{{.order = GetParam()}};
  Stream stream = device.create_stream();
};

void expect_same(const model::TensorView& expected, const half16* got) {
  const auto codes = expected.codes<uint16_t>();
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(got[i].bits, codes[i]) << i;
  }
}

TEST_P(LatentKernel, RotateQuery_IsTheReferencesToTheBit) {
  constexpr int kRope = 64;
  const auto op = attention_op(model::OpKind::kRotateQuery, 512, kRope);
  const auto q = random_bf16(int64_t{3} * kHeads * (kNope + kRope), 3, 1);
  const Buffer<half16> q_buffer(device, stream, q, "q");
  const Buffer<float> turns(device, stream, turns_of(op.weights.config()), "cos_sin");
  const Buffer<int32_t> positions(device, stream, std::vector<int32_t>{1000, 0, 1}, "positions");
  const Buffer<half16> out(device, stream, int64_t{3} * kHeads * kRope, "q_rope");
  rotate_query(stream,
               {.q = q_buffer.data(),
                .cos_sin = turns.data(),
                .positions = positions.data(),
                .q_rope = out.data(),
                .num_tokens = 3,
                .num_heads = kHeads,
                .nope = kNope,
                .rope = kRope});
  expect_same(op.run({view_of({3, kHeads * (kNope + kRope)}, q)}), out.download().data());
}

// Pages 2 and 0 get rows at their edges; a padding token between them writes nothing, nor is anything else touched.
void check_cache_write(Device& device, Stream stream, int kv_lora, int rope) {
  const int row_len = kv_lora + rope;
  auto norm = attention_op(model::OpKind::kRmsNorm, kv_lora, rope);
  const auto gain = random_bf16(kv_lora, 1, 2);
  norm.set_weight(view_of({kv_lora}, gain));
  const auto key = attention_op(model::OpKind::kRotateKey, kv_lora, rope);
  const auto kv_a = random_bf16(int64_t{3} * row_len, 2, 3);
  auto padded = kv_a;
  padded.insert(padded.begin() + row_len, static_cast<size_t>(row_len), half16{0x7FFF});
  const std::vector<int64_t> slots{2 * 64 + 63, -1, 0, 64 - 1};
  const Buffer<half16> kv_a_buffer(device, stream, padded, "kv_a");
  const Buffer<half16> gain_buffer(device, stream, gain, "gain");
  const Buffer<float> turns(device, stream, turns_of(key.weights.config()), "cos_sin");
  const Buffer<int32_t> positions(device, stream, std::vector<int32_t>{1000, -1, 0, 1}, "positions");
  const Buffer<int64_t> slot_buffer(device, stream, slots, "slots");
  const Buffer<half16> cache(device, stream, int64_t{3} * 64 * row_len, "cache");
  cache_latent(stream,
               {.kv_a = kv_a_buffer.data(),
                .gain = gain_buffer.data(),
                .cos_sin = turns.data(),
                .positions = positions.data(),
                .slots = slot_buffer.data(),
                .cache = cache.data(),
                .num_tokens = 4,
                .kv_lora = kv_lora,
                .rope = rope,
                .epsilon = 1e-6f});
  const auto got = cache.download();
  const auto x = view_of({3, row_len}, kv_a);
  const auto expected = reference::estimate_op({.rules = norm.rules,
                                                .workload = norm.workload,
                                                .weights = norm.weights,
                                                .op = norm.op,
                                                .inputs = {reference::given(x)}});
  const auto keys = key.run({x});
  const auto key_codes = keys.codes<uint16_t>();
  std::vector<bool> is_written(got.size());
  const std::vector<int64_t> written{slots[0], slots[2], slots[3]};
  for (size_t t = 0; t < written.size(); ++t) {
    for (int i = 0; i < row_len; ++i) {
      const auto at = static_cast<size_t>(written[t] * row_len + i);
      is_written[at] = true;
      if (i >= kv_lora) {
        ASSERT_EQ(got[at].bits, key_codes[t * static_cast<size_t>(rope) + static_cast<size_t>(i - kv_lora)]);
        continue;
      }
      const size_t e = t * static_cast<size_t>(kv_lora) + static_cast<size_t>(i);
      ASSERT_TRUE(is_inside(expected, e, got[at]));
    }
  }
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(is_written[i] || got[i].bits == 0xFFFF) << "element " << i << " belongs to no token";
  }
}

TEST_P(LatentKernel, CacheLatent_WritesTheRowsOfItsTokensAlone) {
  check_cache_write(device, stream, 512, 64);
  check_cache_write(device, stream, 128, 32);
}

// The same tokens into pages of both forms: the FP8 ones hold what the BF16 ones do, by the format's definition.
TEST_P(LatentKernel, CacheInFp8_HoldsTheBf16RowsQuantised) {
  constexpr int kRope = 32;
  for (const int kv_lora : {128, 512}) {
    const int row_bytes = fp8_cache_row_bytes(kv_lora, kRope);
    auto kv_a_rows = random_bf16(int64_t{3} * (kv_lora + kRope), 2, 3);
    std::fill_n(kv_a_rows.begin(), kv_lora, half16{0});  // a block of zeros has the smallest scale
    const Buffer<half16> kv_a(device, stream, kv_a_rows, "kv_a");
    const Buffer<half16> gain(device, stream, random_bf16(kv_lora, 40, 2), "gain");
    const auto config = attention_op(model::OpKind::kRotateKey, kv_lora, kRope);
    const Buffer<float> turns(device, stream, turns_of(config.weights.config()), "cos_sin");
    const Buffer<int32_t> positions(device, stream, std::vector<int32_t>{7, 0, 1}, "positions");
    const Buffer<int64_t> slots(device, stream, std::vector<int64_t>{64, -1, 63}, "slots");
    const Buffer<half16> in_bf16(device, stream, int64_t{2} * 64 * (kv_lora + kRope), "cache");
    const Buffer<unsigned char> in_fp8(device, stream, int64_t{2} * 64 * row_bytes, "cache_fp8");
    CacheLatentArguments arguments{.kv_a = kv_a.data(),
                                   .gain = gain.data(),
                                   .cos_sin = turns.data(),
                                   .positions = positions.data(),
                                   .slots = slots.data(),
                                   .cache = in_bf16.data(),
                                   .num_tokens = 3,
                                   .kv_lora = kv_lora,
                                   .rope = kRope,
                                   .epsilon = 1e-6f};
    cache_latent(stream, arguments);
    arguments.cache = nullptr;
    arguments.cache_fp8 = in_fp8.data();
    cache_latent(stream, arguments);
    const auto got = in_fp8.download();
    const auto rows = in_bf16.download();
    for (int slot = 0; slot < 2 * 64; ++slot) {
      const auto first = rows.begin() + slot * (kv_lora + kRope);
      std::vector<unsigned char> expected(static_cast<size_t>(row_bytes), 0xFF);  // nobody's
      if (slot == 63 || slot == 64) {
        expected = fp8_rows({first, first + kv_lora + kRope}, kv_lora, kRope).bytes;
      }
      ASSERT_EQ(std::vector<unsigned char>(got.begin() + slot * row_bytes, got.begin() + (slot + 1) * row_bytes),
                expected)
          << "slot " << slot;
    }
  }
}
TEST(CacheInFp8, UnevenLatents_AreRefusedByName) {
  Device device;
  unsigned char somewhere = 0;
  EXPECT_THROW(
      cache_latent(device.create_stream(), {.num_tokens = 1, .kv_lora = 192, .rope = 32, .cache_fp8 = &somewhere}),
      ArgumentError);
}

INSTANTIATE_TEST_SUITE_P(Orders, LatentKernel, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
