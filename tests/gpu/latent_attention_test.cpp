// Absorbed MLA over the paged cache against the reference: ragged lengths at page edges, several new tokens, padding, splits.
#include "gpu/kernels/latent_attention.cuh"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/estimate_call.hpp"
#include "reference/rope.hpp"
#include "tests/gpu/fp8_rows.hpp"
#include "tests/gpu/harness.hpp"
#include "tests/reference/hand_made.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

struct Shape {
  int kv_lora;
  int rope;
  int heads;
};
constexpr Shape kMini{128, 32, 5};
constexpr Shape kV3{512, 64, 2};
// The widths of the other fixtures: edge, notv3, nano, ragged, par.
const std::vector<Shape> kFixtures{{32, 8, 2}, {64, 32, 4}, {128, 16, 4}, {192, 8, 6}, {256, 128, 8}};

// num_cached + num_new keys of each; num_new with 0 keys is a row of padding.
struct Sequence {
  int64_t num_keys;
  int64_t num_new;
};

struct Inputs {
  Shape shape;
  std::vector<Sequence> sequences;
  std::vector<half16> q_latent;
  std::vector<half16> q_rope;
  std::vector<std::vector<half16>> rows;  // of the cache, by sequence
};

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Each sequence's numbers depend on its own length alone, so that it can be run by itself.
Inputs make(const Shape& shape, const std::vector<Sequence>& sequences) {
  Inputs in{shape, sequences, {}, {}, {}};
  for (const auto& [num_keys, num_new] : sequences) {
    const auto seed = static_cast<uint32_t>(num_keys * 10 + num_new);
    auto q_latent = random_bf16(num_new * shape.heads * shape.kv_lora, 1, seed);
    auto q_rope = random_bf16(num_new * shape.heads * shape.rope, 1, seed + 1);
    if (num_keys == 0) {
      std::fill(q_latent.begin(), q_latent.end(), half16{0x7FFF});
      std::fill(q_rope.begin(), q_rope.end(), half16{0x7FFF});
    }
    append(in.q_latent, q_latent);
    append(in.q_rope, q_rope);
    in.rows.push_back(random_bf16(num_keys * (shape.kv_lora + shape.rope), 1, seed + 2));
  }
  return in;
}

struct Result {
  std::vector<half16> o_latent;
  std::vector<float> lse;
};

model::ModelConfig config_of(const Shape& shape) {
  model::ModelConfig config;
  config.num_attention_heads = shape.heads;
  config.kv_lora_rank = shape.kv_lora;
  config.qk_rope_head_dim = shape.rope;
  config.qk_nope_head_dim = shape.rope;
  return config;
}

enum class CacheForm { kBf16, kFp8 };

// Pages are handed out from the back of the pool, every other one; what belongs to nobody, and the tails of pages, hold NaN.
Result run(const Inputs& in, int pages_per_split, const Options& options, CacheForm form = CacheForm::kBf16) {
  Device device(options);
  const Stream stream = device.create_stream();
  const int64_t row_len = in.shape.kv_lora + in.shape.rope;
  const auto num_sequences = static_cast<int64_t>(in.sequences.size());
  constexpr int64_t kPoolPages = 16;
  constexpr int64_t kMaxPages = 5;
  const bool is_fp8 = form == CacheForm::kFp8;
  const int64_t row_bytes = is_fp8 ? fp8_cache_row_bytes(in.shape.kv_lora, in.shape.rope) : row_len * 2;
  std::vector<unsigned char> pool(static_cast<size_t>(kPoolPages * kPageLen * row_bytes), 0xFF);
  std::vector<int32_t> table(static_cast<size_t>(num_sequences * kMaxPages), 1 << 30);  // an access through it faults
  std::vector<int32_t> num_keys;
  std::vector<int32_t> first_token{0};
  int64_t next_page = kPoolPages - 1;
  int max_new = 0;
  int max_splits = 1;  // one more than needed: a split that is nobody's
  for (int64_t s = 0; s < num_sequences; ++s) {
    const auto& [keys, num_new] = in.sequences[static_cast<size_t>(s)];
    for (int64_t key = 0; key < keys; key += kPageLen, next_page -= 2) {
      next_page += next_page < 0 ? kPoolPages - 1 : 0;
      table[static_cast<size_t>(s * kMaxPages + key / kPageLen)] = static_cast<int32_t>(next_page);
      const auto& rows = in.rows[static_cast<size_t>(s)];
      const int64_t count = std::min<int64_t>(kPageLen, keys - key);
      const auto in_fp8 = is_fp8 ? fp8_rows(rows, in.shape.kv_lora, in.shape.rope) : Fp8Rows();
      const auto* const bytes = is_fp8 ? in_fp8.bytes.data() : reinterpret_cast<const unsigned char*>(rows.data());
      std::copy_n(bytes + key * row_bytes, count * row_bytes, pool.begin() + next_page * kPageLen * row_bytes);
    }
    num_keys.push_back(static_cast<int32_t>(keys));
    first_token.push_back(first_token.back() + static_cast<int32_t>(num_new));
    max_new = std::max(max_new, static_cast<int>(num_new));
    max_splits += static_cast<int>((keys + kPageLen * pages_per_split - 1) / (kPageLen * pages_per_split));
  }
  const int64_t num_rows = int64_t{first_token.back()} * in.shape.heads;
  const int64_t partial_rows = int64_t{max_splits} * max_new * in.shape.heads;
  const Buffer<half16> q_latent(device, stream, in.q_latent, "q_latent");
  const Buffer<half16> q_rope(device, stream, in.q_rope, "q_rope");
  const Buffer<unsigned char> cache(device, stream, pool, "cache");
  const Buffer<int32_t> block_table(device, stream, table, "block_table");
  const Buffer<int32_t> keys(device, stream, num_keys, "num_keys");
  const Buffer<int32_t> tokens(device, stream, first_token, "first_token");
  const Buffer<int32_t> first_split(device, stream, num_sequences + 1, "first_split");
  const Buffer<int32_t> split_sequence(device, stream, max_splits, "split_sequence");
  const Buffer<float> partial_o(device, stream, partial_rows * in.shape.kv_lora, "partial_o");
  const Buffer<float> partial_stats(device, stream, partial_rows * 2, "partial_stats");
  const Buffer<half16> o_latent(device, stream, num_rows * in.shape.kv_lora, "o_latent");
  const Buffer<float> lse(device, stream, num_rows, "lse");
  latent_attention(stream,
                   {.q_latent = q_latent.data(),
                    .q_rope = q_rope.data(),
                    .cache = is_fp8 ? nullptr : reinterpret_cast<const half16*>(cache.data()),
                    .block_table = block_table.data(),
                    .num_keys = keys.data(),
                    .first_token = tokens.data(),
                    .first_split = first_split.data(),
                    .split_sequence = split_sequence.data(),
                    .partial_o = partial_o.data(),
                    .partial_stats = partial_stats.data(),
                    .o_latent = o_latent.data(),
                    .lse = lse.data(),
                    .num_sequences = static_cast<int>(num_sequences),
                    .max_pages = kMaxPages,
                    .max_splits = max_splits,
                    .max_new = max_new,
                    .pages_per_split = pages_per_split,
                    .num_heads = in.shape.heads,
                    .kv_lora = in.shape.kv_lora,
                    .rope = in.shape.rope,
                    .scale = static_cast<float>(reference::softmax_scale(config_of(in.shape))),
                    .cache_fp8 = is_fp8 ? cache.data() : nullptr});
  device.synchronize(stream);
  return {o_latent.download(), lse.download()};
}

// One sequence as the reference sees it. With splits the weights are rounded relative to another maximum than the rule's, so each
// may err by half a step of BF16, 2^-8 of itself, and the bound is that of unrounded weights plus 2^-8 sum(p |c|).
void compare(const Inputs& in, size_t s, bool has_splits, const half16* o_latent, const float* lse) {
  const int64_t num_keys = in.sequences[s].num_keys;
  const int64_t num_new = in.sequences[s].num_new;  // not a binding: clang 14 does not let a lambda see one
  const int64_t row_len = in.shape.kv_lora + in.shape.rope;
  int64_t first_token = 0;
  for (size_t before = 0; before < s; ++before) {
    first_token += in.sequences[before].num_new;
  }
  const auto part = [&](const std::vector<half16>& all, int64_t dim) {
    const auto begin = all.begin() + first_token * in.shape.heads * dim;
    return reference::given(view_of({num_new, in.shape.heads, dim}, {begin, begin + num_new * in.shape.heads * dim}));
  };
  reference::HandMadeOp op;
  op.config() = config_of(in.shape);
  op.workload.attention_form = model::AttentionForm::kAbsorbed;
  op.workload.sequences = {{num_keys - num_new, num_new}};
  op.rules.probs = has_splits ? reference::ProbsRule::kFp32 : reference::ProbsRule::kOnline64;
  const auto estimate = [&](model::OpKind kind, std::vector<model::Estimate> inputs) {
    op.op.kind = kind;
    return reference::estimate_op(
        {.rules = op.rules, .workload = op.workload, .weights = op.weights, .op = op.op, .inputs = std::move(inputs)});
  };
  const auto cache = reference::given(view_of({num_keys, row_len}, in.rows[s]));
  const std::vector<model::Estimate> inputs{part(in.q_latent, in.shape.kv_lora), part(in.q_rope, in.shape.rope), cache};
  const auto probs = estimate(model::OpKind::kAttentionProbs, inputs);
  auto expected = estimate(model::OpKind::kOutputLatent, {probs, cache});
  if (has_splits) {
    for (size_t i = 0; i < expected.value.size(); ++i) {
      const size_t row = i / static_cast<size_t>(in.shape.kv_lora);
      const size_t column = i % static_cast<size_t>(in.shape.kv_lora);
      for (size_t key = 0; key < static_cast<size_t>(num_keys); ++key) {
        expected.error[i] += 0x1p-8 * probs.value[row * static_cast<size_t>(num_keys) + key] *
                             std::abs(cache.value[key * static_cast<size_t>(row_len) + column]);
      }
    }
  }
  const int64_t first_row = first_token * in.shape.heads;
  for (size_t i = 0; i < expected.value.size(); ++i) {
    ASSERT_TRUE(is_inside(expected, i, o_latent[first_row * in.shape.kv_lora + static_cast<int64_t>(i)]))
        << "sequence " << s;
  }
  const auto expected_lse = estimate(model::OpKind::kAttentionLse, inputs);
  for (size_t i = 0; i < expected_lse.value.size(); ++i) {
    ASSERT_TRUE(is_inside(expected_lse, i, lse[first_row + static_cast<int64_t>(i)])) << "lse of sequence " << s;
  }
}

void compare_all(const Inputs& in, int pages_per_split, const Options& options) {
  const auto got = run(in, pages_per_split, options);
  int64_t first_row = 0;
  for (size_t s = 0; s < in.sequences.size(); ++s) {
    const auto& [num_keys, num_new] = in.sequences[s];
    if (num_keys > 0) {
      compare(in, s, num_keys > kPageLen * pages_per_split, got.o_latent.data(), got.lse.data());
    } else {
      for (int64_t row = first_row; row < first_row + num_new * in.shape.heads; ++row) {
        ASSERT_EQ(got.lse[static_cast<size_t>(row)], -INFINITY);
        ASSERT_EQ(got.o_latent[static_cast<size_t>(row * in.shape.kv_lora)].bits, 0);
      }
    }
    first_row += num_new * in.shape.heads;
  }
}

const std::vector<Sequence> kRagged = {{1, 1}, {64, 2}, {0, 1}, {65, 3}, {63, 1}, {130, 4}, {4, 4}};

class LatentAttention : public testing::TestWithParam<emulation::Order> {};

TEST_P(LatentAttention, RaggedSequences_AgreeWithTheReference) {
  compare_all(make(kMini, kRagged), 3, {.order = GetParam()});
}
TEST_P(LatentAttention, SplitSequences_AgreeWithTheReference) {
  compare_all(make(kMini, kRagged), 1, {.order = GetParam()});
}
TEST_P(LatentAttention, PublishedWidths_AgreeWithTheReference) {
  compare_all(make(kV3, {{66, 2}, {1, 1}}), 1, {.order = GetParam()});
}

TEST(LatentAttentionWidths, OfAllFixtures_AgreeWithTheReference) {
  for (const auto& shape : kFixtures) {
    ASSERT_TRUE(has_latent_attention(shape.kv_lora, shape.rope));
    compare_all(make(shape, {{65, 4}, {1, 1}, {0, 1}, {64, 3}, {2, 2}}), 2, {.order = {OrderKind::kRandom, 1}});
  }
}
// A draft of one token: two new ones, each with all 128 heads, in the published widths.
TEST(LatentAttentionWidths, PublishedHeads_AgreeWithTheReference) {
  compare_all(make({512, 64, 128}, {{130, 2}}), 4, {});
}
TEST(LatentAttentionWidths, TooWideOrUneven_AreRefusedByName) {
  for (const auto& shape : {Shape{520, 64, 2}, Shape{512, 128, 2}, Shape{100, 32, 2}, Shape{128, 12, 2}}) {
    EXPECT_FALSE(has_latent_attention(shape.kv_lora, shape.rope));
    Device device;
    EXPECT_THROW(latent_attention(device.create_stream(),
                                  {.num_sequences = 1, .max_new = 1, .kv_lora = shape.kv_lora, .rope = shape.rope}),
                 ArgumentError);
  }
}

// Pages in FP8 give the bits that BF16 pages of the same values give: the reference's rule kFp8.
TEST_P(LatentAttention, PagesInFp8_AreTheirValues) {
  for (const auto& shape : {kMini, kV3, Shape{256, 128, 3}, Shape{384, 8, 2}}) {
    auto in = make(shape, {{66, 2}, {1, 1}, {0, 1}});
    const auto got = run(in, 1, {.order = GetParam()}, CacheForm::kFp8);
    for (auto& rows : in.rows) {
      rows = fp8_rows(rows, shape.kv_lora, shape.rope).values;
    }
    const auto expected = run(in, 1, {});
    EXPECT_EQ(std::memcmp(got.o_latent.data(), expected.o_latent.data(), got.o_latent.size() * sizeof(half16)), 0);
    EXPECT_EQ(got.lse, expected.lse);
  }
}

// Batch invariance, and the same bits in every order.
TEST_P(LatentAttention, SequenceAlone_HasTheBitsItHasInABatch) {
  const auto together = run(make(kMini, kRagged), 1, {.order = GetParam()});
  const auto alone = run(make(kMini, {{130, 4}}), 1, {});
  const int64_t row = int64_t{1 + 2 + 1 + 3 + 1} * kMini.heads;
  EXPECT_EQ(std::memcmp(alone.o_latent.data(),
                        together.o_latent.data() + row * kMini.kv_lora,
                        alone.o_latent.size() * sizeof(half16)),
            0);
  EXPECT_TRUE(std::equal(alone.lse.begin(), alone.lse.end(), together.lse.begin() + row));
}

INSTANTIATE_TEST_SUITE_P(Orders, LatentAttention, testing::ValuesIn(kOrders));

}  // namespace
}  // namespace gpu::DSV3_BACKEND
