// The trace of ops: which step an op belongs to, what is added up, what its costs are.
#include "tools/op_trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/generate/generator.hpp"
#include "tests/reference/small_model.hpp"

namespace tools {
namespace {

struct Traced {
  model::ModelConfig config;
  std::vector<model::OpRecord> records;
};

Traced traced(int64_t num_drafts) {
  auto config = reference::small_config();
  config.max_position_embeddings = 64;
  const auto weights = reference::random_weights(config, 4);
  OpTrace trace({5, 2});
  reference::Generator generator(
      weights, reference::v32_rules(reference::Gemm::kFp8, model::ScaleFormat::kFp32), 1, {.num_drafts = num_drafts});
  generator.run(
      {{.prompt = {3, 10, 17, 24, 31}, .max_new_tokens = 4}, {.prompt = {5, 6}, .max_new_tokens = 4}},
      [](size_t, const auto&) { return true; },
      &trace);
  return {config, trace.records(config, {.source = model::RecordSource::kReference, .device = "a CPU"})};
}

// Prefill feeds 7 tokens of two sequences at once; then three steps of one token each, of both sequences.
TEST(OpTrace, StepsOfOneKindShareARow) {
  const Traced run = traced(0);
  int64_t num_prefill = 0;
  int64_t num_decode = 0;
  for (const auto& record : run.records) {
    EXPECT_EQ(record.batch, 2);
    EXPECT_EQ(record.tokens, record.phase == "prefill" ? 7 : 2) << record.op;
    EXPECT_EQ(record.repetitions, record.phase == "prefill" ? 1 : 3) << record.op;
    (record.phase == "prefill" ? num_prefill : num_decode) += 1;
  }
  EXPECT_GT(num_prefill, 20);
  EXPECT_GT(num_decode, 20);
  // The middle decode step has 6 and 3 in the cache.
  const auto logits = std::ranges::find_if(
      run.records, [](const auto& record) { return record.op == "logits" && record.phase == "decode"; });
  ASSERT_NE(logits, run.records.end());
  EXPECT_EQ(logits->context_len, 4);
  EXPECT_EQ(logits->flops, 2 * 2 * run.config.vocab_size * run.config.hidden_size);
}

TEST(OpTrace, ExpertsAreOneRowAndDraftsHaveTheirOwn) {
  const Traced run = traced(1);
  EXPECT_FALSE(
      std::ranges::any_of(run.records, [](const auto& r) { return r.op.find("expert.0") != std::string::npos; }));
  EXPECT_TRUE(std::ranges::any_of(run.records, [](const auto& r) { return r.op.ends_with("moe.expert.*.gate"); }));
  EXPECT_TRUE(std::ranges::any_of(run.records, [](const auto& r) { return r.op == "mtp.0.logits"; }));
}

}  // namespace
}  // namespace tools
