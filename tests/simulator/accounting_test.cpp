// Published figures and figures worked out by hand from the published sizes; none comes from the code.
#include "simulator/accounting.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/check.hpp"
#include "simulator/cost_tables.hpp"

namespace simulator {
namespace {

const DescribedModel& deepseek_v3() {
  static const DescribedModel described = load_model("deepseek-v3");
  return described;
}

const WeightTotals& v3_totals() {
  static const WeightTotals totals = weight_totals(deepseek_v3());
  return totals;
}

// The figure as published: rounded to so many decimals.
double rounded(double value, int decimals) {
  const double unit = std::pow(10.0, decimals);
  return std::round(value * unit) / unit;
}

// 671,026,404,352 weights are in the checkpoint's main model without the 58 x 256 router biases.
TEST(Accounting, DeepSeekV3_HasThePublishedTotals) {
  const WeightTotals& totals = v3_totals();
  EXPECT_EQ(totals.all.weights, 671'026'404'352 + 58 * 256);
  EXPECT_EQ(rounded(static_cast<double>(totals.all.weights) / 1e9, 2), 671.03);
  EXPECT_EQ(totals.expert.weights, 3 * 7168 * 2048);
  EXPECT_EQ(totals.expert.weights, 44'040'192);
  EXPECT_EQ(totals.attention_weights_per_layer, 187'105'280 + 2048);
  EXPECT_EQ(rounded(static_cast<double>(totals.attention_weights_per_layer) / 1e6, 1), 187.1);
  EXPECT_EQ(std::floor(totals.routed_frac() * 1000) / 10, 97.4);
}

// Three figures are in use; the tables are 129280 x 7168 each.
TEST(Accounting, DeepSeekV3_ActiveIsCountedInThreeWays) {
  const WeightTotals& totals = v3_totals();
  const int64_t table = 129280 * 7168;
  EXPECT_EQ(rounded(static_cast<double>(totals.active.weights) / 1e9, 2), 37.55);
  EXPECT_EQ(totals.num_active_without_embedding, totals.active.weights - table);
  EXPECT_EQ(rounded(static_cast<double>(totals.num_active_without_embedding) / 1e9, 2), 36.63);
  EXPECT_EQ(totals.num_active_without_tables, totals.active.weights - 2 * table);
  EXPECT_EQ(rounded(static_cast<double>(totals.num_active_without_tables) / 1e9, 2), 35.70);
}

TEST(Accounting, DeepSeekV3_ComponentsAddUpToTheTotal) {
  const WeightTotals& totals = v3_totals();
  int64_t num_weights = 0;
  int64_t num_active = 0;
  int64_t fp8_bytes = 0;
  int64_t bf16_bytes = 0;
  std::map<Component, ComponentCount> counts;
  for (const ComponentCount& count : count_components(deepseek_v3())) {
    counts[count.component] = count;
    num_weights += count.all.weights;
    num_active += count.active.weights;
    fp8_bytes += count.all.fp8_bytes;
    bf16_bytes += count.all.bf16_bytes;
  }
  EXPECT_EQ(num_weights, totals.all.weights + totals.num_mtp);
  EXPECT_EQ(num_active, totals.active.weights);
  EXPECT_EQ(counts.at(Component::kRoutedExperts).all.weights, 58LL * 256 * 44'040'192);
  EXPECT_EQ(counts.at(Component::kRoutedExperts).active.weights, 58LL * 8 * 44'040'192);
  EXPECT_EQ(counts.at(Component::kDenseFfn).all.weights, 3LL * 3 * 7168 * 18432);
  EXPECT_EQ(counts.at(Component::kRouter).all.weights, 58LL * (256 * 7168 + 256));
  EXPECT_EQ(counts.at(Component::kEmbedding).always.weights, 0);
  // The published checkpoint, MTP included: 688,574,839,360 bytes.
  EXPECT_EQ(fp8_bytes, 688'574'839'360);
  EXPECT_EQ(bf16_bytes, 2 * num_weights + 2 * 59 * 256);  // the router bias is FP32
}

// Always read: neither the experts nor the embedding table. Bytes follow the same rule as weights.
TEST(Accounting, DeepSeekV3_AlwaysReadIsTheRest) {
  const WeightTotals& totals = v3_totals();
  const int64_t table = 129280 * 7168;
  EXPECT_EQ(totals.always.weights, totals.all.weights - 58LL * 256 * 44'040'192 - table);
  EXPECT_EQ(totals.always.fp8_bytes, totals.all.fp8_bytes - 58 * 256 * totals.expert.fp8_bytes - 2 * table);
  EXPECT_EQ(totals.active.fp8_bytes, totals.always.fp8_bytes + 58 * 8 * totals.expert.fp8_bytes + 2 * table);
  EXPECT_EQ(totals.expert.bf16_bytes, 2 * 44'040'192);
}

TEST(Accounting, DeepSeekV3_StepReadsThePublishedShares) {
  const std::map<int64_t, double> active_experts{
      {1, 8.0}, {8, 57.4}, {32, 163.3}, {64, 222.4}, {128, 251.6}, {512, 256.0}};
  for (const auto& [batch, expected] : active_experts) {
    EXPECT_EQ(rounded(step_read(deepseek_v3(), v3_totals(), batch).num_active_experts, 1), expected) << batch;
  }
  const std::map<int64_t, double> read_billions{{1, 37.6}, {8, 163.8}, {32, 434.3}, {128, 659.8}, {512, 671.0}};
  for (const auto& [batch, expected] : read_billions) {
    EXPECT_EQ(rounded(step_read(deepseek_v3(), v3_totals(), batch).num_weights / 1e9, 1), expected) << batch;
  }
}

TEST(Accounting, DeepSeekV3_WeightsOfAGpuInTheSimpleModel) {
  const std::map<int64_t, double> expected{{16, 57.9}, {32, 37.4}, {64, 27.2}, {320, 19.6}};
  for (const auto& [ep, gb] : expected) {
    EXPECT_EQ(rounded(gpu_weights(deepseek_v3(), v3_totals(), ep).simple_gb, 1), gb) << ep;
  }
}

// With EP 1 the GPU holds the main model; each step halves the experts. An expert of FP8 codes and scales is
// 44,040,192 + 4 * 3 * 56 * 16 bytes.
TEST(Accounting, DeepSeekV3_WeightsOfAGpuFromTheCheckpoint) {
  const int64_t expert_bytes = 44'040'192 + 4 * 3 * 56 * 16;
  EXPECT_EQ(v3_totals().expert.fp8_bytes, expert_bytes);
  const GpuWeights all = gpu_weights(deepseek_v3(), v3_totals(), 1);
  EXPECT_EQ(all.fp8_bytes, v3_totals().all.fp8_bytes);
  EXPECT_EQ(all.bf16_bytes, v3_totals().all.bf16_bytes);
  EXPECT_EQ(all.fp8_bytes - gpu_weights(deepseek_v3(), v3_totals(), 2).fp8_bytes, 58 * 128 * expert_bytes);
  const GpuWeights uneven = gpu_weights(deepseek_v3(), v3_totals(), 48);
  EXPECT_EQ(uneven.experts_per_gpu, 6);  // 256 / 48 = 5.33: the fullest GPU has 6
  EXPECT_EQ(all.fp8_bytes - uneven.fp8_bytes, 58 * 250 * expert_bytes);
}

// Attention TP4 cuts q_b (24576 x 1536), kv_b (32768 x 512) and o_proj (7168 x 16384), codes and scales, to a quarter.
TEST(Accounting, DeepSeekV3_ReportedDeploymentsHoldWhatTheReportSays) {
  const auto deployments = reported_deployments(deepseek_v3(), v3_totals());
  ASSERT_EQ(deployments.size(), 2U);
  const int64_t codes = 24576 * 1536 + 32768 * 512 + 7168 * 16384;
  const int64_t cut_bytes = 61 * (codes + codes / (128 * 128) * 4) * 3 / 4;
  const int64_t expert_bytes = 58 * v3_totals().expert.fp8_bytes;
  const int64_t whole = gpu_weights(deepseek_v3(), v3_totals(), 256).fp8_bytes;  // one expert of each layer
  EXPECT_EQ(deployments[0].ep, 32);
  EXPECT_EQ(deployments[0].fp8_bytes, whole + 8 * expert_bytes - cut_bytes);
  EXPECT_EQ(deployments[1].ep, 320);
  EXPECT_EQ(deployments[1].fp8_bytes, whole - expert_bytes - cut_bytes);  // the shared expert has an expert's size
}

TEST(Accounting, DeepSeekV3_CacheTakesItsPublishedBytes) {
  EXPECT_EQ(2 * deepseek_v3().kv_values_per_token, 70'272);
  EXPECT_EQ(rounded(70'272.0 * 131'072 / (1 << 30), 1), 8.6);
  EXPECT_EQ(2 * deepseek_v3().kv_values_per_token_mha, 61 * 128 * (192 + 128) * 2);
}

// From the config, not from V3's 576.
TEST(Accounting, CacheOfAnotherLatentSize_FollowsTheConfig) {
  model::ModelConfig config = model::built_in_config("deepseek-v3");
  config.kv_lora_rank = 256;
  config.qk_rope_head_dim = 32;
  EXPECT_EQ(describe("test", config).kv_values_per_token, 61 * (256 + 32));
}

// 2 FLOPs for each active weight but the table's, gains and router biases; kv_b is used whole by q_latent and context.
// Absorbed attention: 128 heads x (576 + 512) products for each position and layer.
TEST(Accounting, DeepSeekV3_DecodeFlopsFollowFromActiveWeights) {
  const TokenFlops flops = decode_flops(deepseek_v3(), 4096);
  const int64_t gains = 881'664 + 61 * 2048;  // norms outside and inside attention
  const int64_t multiplied = v3_totals().num_active_without_embedding - gains - 58 * 256;
  EXPECT_EQ(flops.weights, 2.0 * static_cast<double>(multiplied));
  EXPECT_EQ(flops.attention, 61.0 * 2 * 128 * (576 + 512) * 4096);
}

// Expanded and causal: the average token of a prompt sees (n + 1) / 2 positions; 128 heads x (192 + 128).
TEST(Accounting, DeepSeekV3_PrefillFlopsAverageOverThePrompt) {
  const TokenFlops flops = prefill_flops(deepseek_v3(), 1023);
  EXPECT_EQ(flops.weights, decode_flops(deepseek_v3(), 1).weights);
  EXPECT_EQ(flops.attention, 61.0 * 2 * 128 * (192 + 128) * 512);
}

TEST(Accounting, KimiK2_IsATrillionWith32BillionActive) {
  const WeightTotals totals = weight_totals(load_model("kimi-k2"));
  EXPECT_NEAR(static_cast<double>(totals.all.weights), 1026e9, 1e9);
  EXPECT_NEAR(static_cast<double>(totals.num_active_without_embedding), 32e9, 1e9);
  EXPECT_EQ(totals.num_mtp, 0);
  EXPECT_TRUE(reported_deployments(load_model("kimi-k2"), totals).empty());
}

TEST(Accounting, Mixtral_HasThePublishedTotals) {
  const DescribedModel mixtral = load_model("mixtral-8x7b");
  const WeightTotals totals = weight_totals(mixtral);
  EXPECT_EQ(totals.all.weights, 46'702'792'704);
  EXPECT_EQ(rounded(static_cast<double>(totals.active.weights) / 1e9, 1), 12.9);
  EXPECT_EQ(rounded(step_read(mixtral, totals, 8).num_active_experts, 1), 7.2);
}

TEST(Accounting, Llama3_HasThePublishedTotals) {
  const DescribedModel big = load_model("llama-3-70b");
  const WeightTotals totals = weight_totals(big);
  EXPECT_EQ(totals.all.weights, 70'553'706'496);
  EXPECT_EQ(totals.active.weights, totals.all.weights);
  EXPECT_EQ(2 * big.kv_values_per_token, 320 * 1024);
  EXPECT_EQ(step_read(big, totals, 64).num_weights, 70'553'706'496.0);
  EXPECT_EQ(weight_totals(load_model("llama-3-8b")).all.weights, 8'030'261'248);
}

TEST(Accounting, Llama3_FlopsFollowFromShapes) {
  const DescribedModel described = load_model("llama-3-8b");
  const int64_t gains = (2 * 32 + 1) * 4096;
  const int64_t multiplied = 8'030'261'248 - 128256LL * 4096 - gains;
  EXPECT_EQ(decode_flops(described, 100).weights, 2.0 * static_cast<double>(multiplied));
  EXPECT_EQ(decode_flops(described, 100).attention, 32.0 * 4 * 32 * 128 * 100);
  EXPECT_EQ(prefill_flops(described, 99).attention, 32.0 * 4 * 32 * 128 * 50);
}

TEST(Accounting, UnknownModel_IsRefusedWithTheKnownOnes) {
  try {
    load_model("deepseek-v9");
    FAIL() << "expected an InputError";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("deepseek-v3, kimi-k2"), std::string::npos);
  }
}

TEST(CostTables, OptionsOutOfRange_AreRefused) {
  const DescribedModel mixtral = load_model("mixtral-8x7b");
  EXPECT_THROW(cost_tables(mixtral, {.batches = {0}}), model::InputError);
  EXPECT_THROW(cost_tables(mixtral, {.eps = {-1}}), model::InputError);
  EXPECT_THROW(cost_tables(mixtral, {.contexts = {1 << 21}}), model::InputError);
  EXPECT_THROW(cost_tables(mixtral, {.gpus_per_node = 0}), model::InputError);
  EXPECT_THROW(cost_tables(mixtral, {.ib_gb_per_s = 0}), model::InputError);
  EXPECT_THROW(cost_tables(mixtral, {.load = {1, 2, 3}}), model::InputError);
}

}  // namespace
}  // namespace simulator
