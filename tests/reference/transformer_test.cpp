#include "reference/transformer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/check.hpp"
#include "reference/tokens.hpp"
#include "tests/reference/small_model.hpp"

namespace reference {
namespace {

const HandMadeWeights& weights() {
  static const HandMadeWeights made = random_weights(small_config(), 4);
  return made;
}

const Rules kV32 = v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32);

StepInput first_step() {
  return two_steps(model::AttentionForm::kExpanded, weights().config().vocab_size)[0];
}

class Watcher : public model::Probe {
 public:
  explicit Watcher(bool wants_optional) : wants_optional_(wants_optional) {}
  [[nodiscard]] bool wants(const model::Op&) const override { return wants_optional_; }
  void see(const model::Op& op, const model::TensorView& value) override {
    ids.push_back(op.id);
    shapes[op.id] = value.shape;
    if (op.kind == model::OpKind::kRouterExperts) {
      topk_ids = value;
    }
    if (op.expert >= 0 && op.layer == 1) {
      rows_of_expert[op.expert] = value.num_rows();
    }
  }
  std::vector<std::string> ids;
  std::map<std::string, model::Shape> shapes;
  model::TensorView topk_ids;
  std::map<int64_t, int64_t> rows_of_expert;

 private:
  bool wants_optional_;
};

// The ops of the list, in its order; grouped ones as the parts that some token chose.
TEST(Transformer, Probe_SeesTheListInOrder) {
  Watcher watcher(true);
  CacheState cache;
  const auto input = first_step();
  Transformer(weights(), kV32, 1).step(input, cache, watcher);
  size_t next = 0;
  for (const auto& op : model::op_list(weights().config(), input.workload)) {
    if (op.num_parts == 1) {
      ASSERT_LT(next, watcher.ids.size());
      EXPECT_EQ(watcher.ids[next++], op.id);
      EXPECT_EQ(watcher.shapes[op.id], op.shape) << op.id;
      continue;
    }
    for (int64_t expert = 0; expert < op.num_parts; ++expert) {
      if (next < watcher.ids.size() && watcher.ids[next] == model::expert_part(op, expert).id) {
        ++next;
      }
    }
  }
  EXPECT_EQ(next, watcher.ids.size());
}

TEST(Transformer, OptionalOps_RunOnlyIfWanted) {
  Watcher watcher(false);
  CacheState cache;
  Transformer(weights(), kV32, 1).step(first_step(), cache, watcher);
  EXPECT_THAT(watcher.ids, ::testing::Not(::testing::Contains(::testing::EndsWith(".lse"))));
}

TEST(Transformer, Experts_HaveTheRowsOfTheirTokensAndElseAreAbsent) {
  Watcher watcher(false);
  CacheState cache;
  auto input = first_step();
  input.workload.num_mtp_layers = 0;
  input.mtp_tokens.clear();
  Transformer(weights(), kV32, 1).step(input, cache, watcher);
  std::map<int64_t, int64_t> expected;
  for (const int32_t id : watcher.topk_ids.codes<int32_t>()) {
    ++expected[id];
  }
  EXPECT_EQ(watcher.rows_of_expert, expected);
}

TEST(Transformer, Cache_GrowsByTheFedTokens) {
  CacheState cache;
  BlindProbe probe;
  const auto steps = two_steps(model::AttentionForm::kAbsorbed, weights().config().vocab_size);
  const Transformer transformer(weights(), kV32, 1);
  transformer.step(steps[0], cache, probe);
  EXPECT_EQ(cache.size(), 3u);  // two layers and the MTP layer
  EXPECT_EQ(cache.at("cache.2.latent").shape, (model::Shape{5, 72}));
  transformer.step(steps[1], cache, probe);
  EXPECT_EQ(cache.at("cache.0.latent").shape, (model::Shape{10, 72}));
}

TEST(Transformer, RunOp_MayReplaceAnOp) {
  Watcher watcher(false);
  CacheState cache;
  const auto fault = [](const OpCall& call) { return call.op.id == "logits" ? f32({1, 1}, {7}) : run_op(call); };
  Transformer(weights(), kV32, 1, fault).step(first_step(), cache, watcher);
  EXPECT_EQ(watcher.shapes["logits"], (model::Shape{1, 1}));
}

TEST(Transformer, TokenOutsideTheVocabulary_IsAnInputError) {
  CacheState cache;
  BlindProbe probe;
  auto input = first_step();
  input.tokens[2] = 40;
  EXPECT_THROW(Transformer(weights(), kV32, 1).step(input, cache, probe), model::InputError);
  input = first_step();
  input.mtp_tokens[0][4] = -1;
  EXPECT_THROW(Transformer(weights(), kV32, 1).step(input, cache, probe), model::InputError);
}

TEST(Transformer, TokensAndWorkloadDiffer_Throws) {
  CacheState cache;
  BlindProbe probe;
  auto input = first_step();
  input.tokens.pop_back();
  EXPECT_THROW(Transformer(weights(), kV32, 1).step(input, cache, probe), model::CheckError);
}

// Sequence (1 2 3) followed by 4 5, sequence (10) followed by 11 12.
TEST(ShiftedTokens, EveryRow_ReadsTheTokenOnePlusDepthAhead) {
  const auto shifted = shifted_tokens({{1, 2, 3}, {10}}, {{4, 5}, {11, 12}}, 2);
  EXPECT_EQ(shifted, (std::vector<std::vector<int32_t>>{{2, 3, 4, 11}, {3, 4, 5, 12}}));
}

TEST(ShiftedTokens, TooFewFollowingTokens_Throw) {
  EXPECT_THROW((void)shifted_tokens({{1}}, {{2}}, 2), model::CheckError);
}

}  // namespace
}  // namespace reference
