#include "reference/transformer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/check.hpp"
#include "reference/ops/attention.hpp"
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

// The same weights as a source that keeps them: the executor then holds on to them, to kv_b dequantised too.
class KeptWeights : public model::WeightSource {
 public:
  explicit KeptWeights(const HandMadeWeights& kept) : kept_(kept) {}
  [[nodiscard]] const model::ModelConfig& config() const override { return kept_.config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override { return kept_.weight(name); }
  [[nodiscard]] bool keeps_tensors() const override { return true; }

 private:
  const HandMadeWeights& kept_;
};

// The bytes of every op of two steps but kv_b, which is left out where nobody wants it.
class Bytes : public Watcher {
 public:
  using Watcher::Watcher;
  void see(const model::Op& op, const model::TensorView& value) override {
    num_kv_b += is_kv_b(op) ? 1 : 0;
    if (!is_kv_b(op) && op.kind != model::OpKind::kCacheLatent && !op.optional) {
      seen.emplace_back(op.id, std::vector<std::byte>(value.bytes.begin(), value.bytes.end()));
    }
  }
  std::vector<std::pair<std::string, std::vector<std::byte>>> seen;
  int64_t num_kv_b = 0;
};

Bytes bytes_of_two_steps(const model::WeightSource& source, const Rules& rules, model::AttentionForm form, bool wants) {
  Bytes bytes(wants);
  LatentCache cache;
  const Transformer transformer(source, rules, 1);
  for (const StepInput& input : two_steps(form, source.config().vocab_size)) {
    transformer.step(input, cache, bytes);
  }
  return bytes;
}

// kv_b as an op of its own and fetched weights, against keys expanded head by head and weights that were kept.
TEST(Transformer, WhatIsKeptAndWhatIsLeftOut_ChangesNoBit) {
  auto config = small_config();
  config.num_attention_heads = 4;  // rows of the third and fourth head lie in two blocks of scales
  const auto made = random_weights(config, 5);
  for (const Rules& rules : {kV32,
                             v32_rules(Gemm::kFp8, model::ScaleFormat::kUe8m0),
                             v32_rules(Gemm::kBf16, model::ScaleFormat::kFp32),
                             v3_demo_rules(Gemm::kFp8, model::ScaleFormat::kFp32),
                             hf_rules(),
                             fp16_rules(Gemm::kFp8, model::ScaleFormat::kFp32),
                             exact_rules()}) {
    for (const auto form : {model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
      const auto plain = bytes_of_two_steps(made, rules, form, true);
      const auto kept = bytes_of_two_steps(KeptWeights(made), rules, form, false);
      EXPECT_EQ(plain.seen, kept.seen);
      const bool expands = form == model::AttentionForm::kExpanded;
      EXPECT_EQ(plain.num_kv_b, expands ? 6 : 0);
      EXPECT_EQ(kept.num_kv_b, expands && rules.exact() ? 6 : 0);
    }
  }
}

// The ops of the list, in its order; grouped ones as the parts that some token chose.
TEST(Transformer, Probe_SeesTheListInOrder) {
  Watcher watcher(true);
  LatentCache cache;
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
  LatentCache cache;
  Transformer(weights(), kV32, 1).step(first_step(), cache, watcher);
  EXPECT_THAT(watcher.ids, ::testing::Not(::testing::Contains(::testing::EndsWith(".lse"))));
}

TEST(Transformer, Experts_HaveTheRowsOfTheirTokensAndElseAreAbsent) {
  Watcher watcher(false);
  LatentCache cache;
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
  LatentCache cache;
  BlindProbe probe;
  const auto steps = two_steps(model::AttentionForm::kAbsorbed, weights().config().vocab_size);
  const Transformer transformer(weights(), kV32, 1);
  transformer.step(steps[0], cache, probe);
  EXPECT_EQ(cache.row_len(), 72);
  for (const int64_t layer : {0, 1, 2}) {  // two layers and the MTP layer
    EXPECT_EQ(cache.num_rows(layer, 0), 5);
  }
  transformer.step(steps[1], cache, probe);
  EXPECT_EQ(cache.num_rows(0, 0), 7);
  EXPECT_EQ(cache.num_rows(0, 1), 3);
}

// A draft of the MTP layer alone, fed with the state of the main model, gives what the whole step gives.
TEST(Transformer, MtpLayerAlone_IsThatOfTheWholeStep) {
  class Kept : public BlindProbe {
   public:
    void see(const model::Op& op, const model::TensorView& value) override { values[op.id] = value; }
    std::map<std::string, model::TensorView> values;
  };
  for (const auto form : {model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    const Transformer transformer(weights(), kV32, 1);
    Kept whole;
    LatentCache cache;
    LatentCache drafts;
    for (StepInput input : two_steps(form, weights().config().vocab_size)) {
      transformer.step(input, cache, whole);
      input.mtp_state = whole.values.at("final_norm");
      input.workload.only_mtp_layer = 0;
      Kept alone;
      transformer.step(input, drafts, alone);
      EXPECT_FALSE(alone.values.contains("logits"));
      for (const auto& [id, value] : alone.values) {
        EXPECT_EQ(numbers(value), numbers(whole.values.at(id))) << id;
      }
      EXPECT_EQ(numbers(transformer.logits(whole.values.at("mtp.0.norm"), 0)),
                numbers(whole.values.at("mtp.0.logits")));
      EXPECT_EQ(numbers(transformer.logits(whole.values.at("final_norm"))), numbers(whole.values.at("logits")));
    }
    EXPECT_EQ(drafts.num_rows(0, 0), 0);
    EXPECT_EQ(drafts.num_rows(2, 0), 7);
  }
}

TEST(Transformer, WithoutLogits_NoHeadIsRun) {
  Watcher watcher(false);
  LatentCache cache;
  auto input = first_step();
  input.with_logits = false;
  Transformer(weights(), kV32, 1).step(input, cache, watcher);
  EXPECT_FALSE(watcher.shapes.contains("logits"));
  EXPECT_FALSE(watcher.shapes.contains("mtp.0.logits"));
  EXPECT_TRUE(watcher.shapes.contains("mtp.0.norm"));
}

// The numbers in the cache are the caller's: the second sequence of a step is read from where it was written.
TEST(Transformer, SequencesOfAStep_MayLieAnywhereInTheCache) {
  LatentCache cache;
  BlindProbe probe;
  const Transformer transformer(weights(), kV32, 1);
  auto steps = two_steps(model::AttentionForm::kAbsorbed, weights().config().vocab_size);
  steps[0].cache_sequences = {4};
  steps[1].cache_sequences = {4, 1};
  for (const auto& step : steps) {
    transformer.step(step, cache, probe);
  }
  EXPECT_EQ(cache.num_rows(0, 4), 7);
  EXPECT_EQ(cache.num_rows(0, 1), 3);
  EXPECT_EQ(cache.num_rows(0, 0), 0);
  EXPECT_THROW(transformer.step(steps[1], cache, probe), model::CheckError);  // it has 7 cached rows, not 5
}

TEST(Transformer, RunOp_MayReplaceAnOp) {
  Watcher watcher(false);
  LatentCache cache;
  const auto fault = [](const OpCall& call) { return call.op.id == "logits" ? f32({1, 1}, {7}) : run_op(call); };
  Transformer(weights(), kV32, 1, fault).step(first_step(), cache, watcher);
  EXPECT_EQ(watcher.shapes["logits"], (model::Shape{1, 1}));
}

TEST(Transformer, TokenOutsideTheVocabulary_IsAnInputError) {
  LatentCache cache;
  BlindProbe probe;
  auto input = first_step();
  input.tokens[2] = 40;
  EXPECT_THROW(Transformer(weights(), kV32, 1).step(input, cache, probe), model::InputError);
  input = first_step();
  input.mtp_tokens[0][4] = -1;
  EXPECT_THROW(Transformer(weights(), kV32, 1).step(input, cache, probe), model::InputError);
}

TEST(Transformer, TokensAndWorkloadDiffer_Throws) {
  LatentCache cache;
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
