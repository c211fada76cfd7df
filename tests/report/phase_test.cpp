// Every op of the model has its place.
#include "report/phase.hpp"

#include <gtest/gtest.h>

#include "model/op_list.hpp"

namespace report {
namespace {

TEST(Phase, OpsGoWhereTheyBelong) {
  EXPECT_EQ(phase_of("embed", "embed"), Phase::kEmbedding);
  EXPECT_EQ(phase_of("layer.3.attn.q_a", "linear"), Phase::kAttention);
  EXPECT_EQ(phase_of("cache.3.latent", "cache_latent"), Phase::kAttention);
  EXPECT_EQ(phase_of("layer.3.attn.o_proj.all_reduce", "all_reduce"), Phase::kAllReduce);
  EXPECT_EQ(phase_of("layer.0.mlp.gate", "linear"), Phase::kDense);
  EXPECT_EQ(phase_of("layer.0.ffn", "linear"), Phase::kDense);
  EXPECT_EQ(phase_of("layer.3.ffn", "moe_output"), Phase::kExperts);
  EXPECT_EQ(phase_of("layer.3.moe.topk_ids", "router_experts"), Phase::kRouter);
  EXPECT_EQ(phase_of("layer.3.moe.expert.*.gate", "linear"), Phase::kExperts);
  EXPECT_EQ(phase_of("layer.3.moe.dispatch", "all_to_all"), Phase::kAllToAll);
  EXPECT_EQ(phase_of("layer.3.moe.waiting", "waiting"), Phase::kWaiting);
  EXPECT_EQ(phase_of("mtp.0.layer.attn.q_a", "linear"), Phase::kMtp);
  EXPECT_EQ(phase_of("logits", "head"), Phase::kHead);
  EXPECT_EQ(phase_of("engine.host", "engine"), Phase::kEngine);
  EXPECT_EQ(phase_of("bench.v3.moe.expert.gate", "linear"), Phase::kExperts);
  EXPECT_EQ(phase_of("bench.", "linear"), Phase::kOther);
}

TEST(Phase, NoOpOfTheModelIsOther) {
  const auto config = model::built_in_config("deepseek-v3");
  for (const auto form : {model::AttentionForm::kExpanded, model::AttentionForm::kAbsorbed}) {
    for (const model::Op& op : model::op_list(
             config, {.sequences = {{.num_cached = 4, .num_new = 1}}, .attention_form = form, .num_mtp_layers = 1})) {
      EXPECT_NE(phase_of(op.id, model::op_kind_name(op.kind)), Phase::kOther) << op.id;
    }
  }
}

TEST(Phase, TheJourneySplitsMoeLayersAndKeepsDenseOnesWhole) {
  const auto row = [](const char* op, const char* kind, bool is_dense) {
    return journey_row_of(op, phase_of(op, kind), is_dense);
  };
  EXPECT_EQ(row("layer.0.attn.q_a", "linear", true), JourneyRow::kDenseLayers);
  EXPECT_EQ(row("layer.3.attn.q_a", "linear", false), JourneyRow::kQkv);
  EXPECT_EQ(row("layer.3.attn.probs", "attention_probs", false), JourneyRow::kAttention);
  EXPECT_EQ(row("layer.3.attn.o_proj", "linear", false), JourneyRow::kOutputProjection);
  EXPECT_EQ(row("layer.3.attn_norm", "rms_norm", false), JourneyRow::kNorms);
  EXPECT_EQ(row("layer.3.moe.combine", "all_to_all", false), JourneyRow::kDispatchCombine);
  EXPECT_EQ(row("final_norm", "rms_norm", false), JourneyRow::kHead);
}

TEST(Phase, IdsLoseTheirLayerAndExpert) {
  EXPECT_EQ(id_in_layer("layer.12.attn.q_a"), "attn.q_a");
  EXPECT_EQ(id_in_layer("cache.12.latent"), "cache.latent");
  EXPECT_EQ(id_in_layer("mtp.0.layer.attn.q_a"), "attn.q_a");
  EXPECT_EQ(id_in_layer("mtp.0.enorm"), "enorm");
  EXPECT_EQ(id_in_layer("logits"), "logits");
  EXPECT_EQ(grouped_id("layer.3.moe.expert.17.gate"), "layer.3.moe.expert.*.gate");
  EXPECT_EQ(grouped_id("layer.3.moe.expert.17"), "layer.3.moe.expert.*");
  EXPECT_EQ(grouped_id("layer.3.moe.shared"), "layer.3.moe.shared");
}

}  // namespace
}  // namespace report
