#include "simulator/search.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "simulator/launch_command.hpp"

namespace simulator {
namespace {

SearchResult found(const SearchRequest& request) {
  MoeCurves curves;
  return search(request, built_in_calibrations(), {}, curves);
}

SearchRequest decode_on_h200() {
  return {.base = {.gpu = "h200", .decode_only = true}, .gpus = {64}};
}

TEST(Search, ParetoPoints_TradeUsersAgainstGpus) {
  const SearchResult result = found(decode_on_h200());
  ASSERT_GE(result.pareto.size(), 3U);
  for (size_t i = 1; i < result.pareto.size(); ++i) {
    EXPECT_LT(result.pareto[i].serving.tokens_per_s_per_user, result.pareto[i - 1].serving.tokens_per_s_per_user);
    EXPECT_GT(result.pareto[i].serving.tokens_per_s_per_gpu, result.pareto[i - 1].serving.tokens_per_s_per_gpu);
  }
  for (const SearchPoint& point : result.pareto) {
    EXPECT_EQ(point.deployment.num_gpus(), 64);
    EXPECT_TRUE(point.serving.memory.fits());
  }
}

// A point of the search is what estimate says of the whole deployment.
TEST(Search, APoint_IsTheEstimateOfItsDeployment) {
  const SearchResult result = found(decode_on_h200());
  const SearchPoint& point = result.pareto.back();
  MoeCurves curves;
  const Serving whole =
      serve(point.deployment, choose_fits(built_in_calibrations(), point.deployment.hardware), curves);
  EXPECT_NEAR(whole.tpot_ms, point.serving.tpot_ms, 1e-9 * whole.tpot_ms);
  EXPECT_NEAR(whole.tokens_per_s_per_gpu, point.serving.tokens_per_s_per_gpu, 1e-9 * whole.tokens_per_s_per_gpu);
}

TEST(Search, LimitsAreKept) {
  SearchRequest request = decode_on_h200();
  request.most_tpot_ms = 40;
  for (const SearchPoint& point : found(request).pareto) {
    EXPECT_LE(point.serving.tpot_ms, 40);
  }
}

// Prefill workers are as many as the decode workers need, no request waits for more than it has to, and together they fit.
TEST(Search, DisaggregatedPoints_AreFedAndFit) {
  SearchRequest request{.base = {.gpu = "h200"}, .gpus = {64}, .disaggregated = true};
  const SearchResult result = found(request);
  ASSERT_GE(result.pareto.size(), 3U);
  for (const SearchPoint& point : result.pareto) {
    ASSERT_TRUE(point.deployment.prefill);
    EXPECT_LE(point.deployment.num_gpus(), 64);
    EXPECT_EQ(point.serving.limit, Limit::kNone);
    const double prompts_per_s =
        static_cast<double>(point.deployment.prefill->workers * point.deployment.prefill->rank.layout.dp) * 1e6 /
        point.serving.prompt.total_us;
    EXPECT_LE(point.serving.requests_per_s, 0.9 * prompts_per_s * (1 + 1e-9));
  }
}

TEST(Search, PipelinesAreSearched) {
  // Two nodes of A100 hold the weights in no other way than over both.
  const SearchResult result = found({.base = {.gpu = "a100", .decode_only = true}, .gpus = {16}});
  bool has_pipeline = false;
  for (const SearchPoint& point : result.pareto) {
    has_pipeline = has_pipeline || point.deployment.decode.rank.layout.pp > 1;
  }
  EXPECT_TRUE(has_pipeline);
}

TEST(Search, WhatCannotBe_IsRefusedWithTheClosest) {
  SearchRequest request = decode_on_h200();
  request.most_tpot_ms = 0.01;
  EXPECT_THROW(found(request), model::InputError);
  request = decode_on_h200();
  request.gpus = {2};
  EXPECT_THROW(found(request), model::InputError);
}

// $2 an hour at 1,000 tokens/s: 3.6 M tokens an hour, $0.5556 a million.
TEST(Search, Cost_IsPriceOverTokens) {
  SearchResult result;
  result.pareto.push_back({build_deployment({}), {}});
  result.pareto.back().serving.tokens_per_s_per_gpu = 1000;
  const Table table = pareto_table(result, 2);
  EXPECT_NEAR(std::get<double>(table.rows.front().back()), 2 / 3.6, 1e-12);
}

TEST(LaunchCommand, NamesTheDegreesAsTheEnginesCountThem) {
  const Deployment deployment = build_deployment(
      {.gpu = "h100", .batch = 64, .redundant_experts = 32, .eplb = true, .layout = parse_shorthand("tp2dp8ep16")});
  // SGLang's tp counts all ranks; vLLM's those of one attention group.
  const std::string sglang = launch_command(deployment, "sglang", "deepseek-v3");
  EXPECT_NE(sglang.find("--tp-size 16"), std::string::npos) << sglang;
  EXPECT_NE(sglang.find("--dp-size 8 --enable-dp-attention"), std::string::npos);
  EXPECT_NE(sglang.find("--ep-num-redundant-experts 32"), std::string::npos);
  EXPECT_NE(sglang.find("--nnodes 2"), std::string::npos);
  const std::string vllm = launch_command(deployment, "vllm", "/models/own");
  EXPECT_NE(vllm.find("--tensor-parallel-size 2"), std::string::npos) << vllm;
  EXPECT_NE(vllm.find("--data-parallel-size 8 --data-parallel-size-local 4"), std::string::npos);
  EXPECT_NE(sglang.find("--model-path deepseek-ai/DeepSeek-V3 "), std::string::npos);
  EXPECT_NE(vllm.find("vllm serve /models/own "), std::string::npos);
  EXPECT_NE(vllm.find("--enable-expert-parallel"), std::string::npos);
  Deployment split = deployment;
  split.prefill = Pool{.rank = deployment.decode.rank, .workers = 2};
  const std::string both = launch_command(split, "sglang", "deepseek-v3");
  EXPECT_NE(both.find("# each of 2 prefill workers"), std::string::npos) << both;
  EXPECT_NE(both.find("--disaggregation-mode prefill"), std::string::npos);
  EXPECT_NE(both.find("--deepep-mode normal"), std::string::npos);
  EXPECT_LT(both.find("--disaggregation-mode prefill"), both.find("--deepep-mode low_latency"));
  EXPECT_NE(both.find("--disaggregation-mode decode"), std::string::npos);
  EXPECT_THROW(launch_command(split, "vllm", "deepseek-v3"), model::InputError);
  EXPECT_THROW(launch_command(deployment, "tgi", "deepseek-v3"), model::InputError);
}

}  // namespace
}  // namespace simulator
