#include "simulator/layout.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "model/check.hpp"
#include "tests/simulator/small_config.hpp"

namespace simulator {
namespace {

using model::ParallelLayout;

std::string resolved(const std::string& shorthand) {
  return layout_text(resolve(parse_shorthand(shorthand)));
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::function<void()>& action, const std::string& part) {
  const std::string message = refusal(action);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(Layout, Shorthand_MeansWhatOperatorsMean) {
  EXPECT_EQ(resolved("tp8"), "tp8 pp1 dp1 ep1");
  EXPECT_EQ(resolved("tp4pp2"), "tp4 pp2 dp1 ep1");
  EXPECT_EQ(resolved("pp2tp4"), "tp4 pp2 dp1 ep1");
  EXPECT_EQ(resolved("dep8"), "tp1 pp1 dp8 ep8");
  EXPECT_EQ(resolved("tep8"), "tp8 pp1 dp1 ep8");
  EXPECT_EQ(resolved("tp4dp8ep32sp"), "tp4 pp1 dp8 ep32 sp");
  EXPECT_EQ(resolved("dp8"), "tp1 pp1 dp8 ep8");
}

TEST(Layout, ShorthandThatSaysNothingOrTwoThings_IsRefused) {
  for (const char* text :
       {"", "8", "tp", "tp0", "xp8", "tp8tp4", "dep8ep4", "tp8-", "TP8", "tp99999999999999999999", "tp8 "}) {
    expect_refused([&] { parse_shorthand(text); }, "expected parts like tp8");
  }
}

TEST(Layout, FlagsAndShorthand_CompleteEachOther) {
  EXPECT_EQ(layout_text(resolve(merged({.pp = 2}, parse_shorthand("tp8sp")))), "tp8 pp2 dp1 ep1 sp");
  expect_refused([] { merged({.tp = 4}, parse_shorthand("tp8")); }, "tp is given twice, 4 and 8");
}

// SGLang: --tp 8 --dp 8 --enable-dp-attention. vLLM: -tp 2 -dp 8 --enable-expert-parallel. aiconfigurator: moe_tp * moe_ep = tp * dp.
TEST(Layout, SpellingsOfEngines_GiveTheSameRanks) {
  EXPECT_EQ(layout_text(resolve({.tp = 8, .dp = 8, .dp_inside_tp = true})), "tp1 pp1 dp8 ep8");
  EXPECT_EQ(layout_text(resolve({.tp = 16, .dp = 4, .dp_inside_tp = true})), "tp4 pp1 dp4 ep16");
  EXPECT_EQ(layout_text(resolve({.tp = 2, .dp = 8, .expert_parallel = true})), "tp2 pp1 dp8 ep16");
  EXPECT_EQ(layout_text(resolve({.tp = 8, .expert_parallel = true})), "tp8 pp1 dp1 ep8");
  EXPECT_EQ(layout_text(resolve({.tp = 8, .ep = 2, .moe_tp = 4})), "tp8 pp1 dp1 ep2");
  EXPECT_EQ(layout_text(resolve({.tp = 8, .moe_tp = 2})), "tp8 pp1 dp1 ep4");
}

TEST(Layout, Contradictions_AreRefused) {
  expect_refused([] { resolve({.tp = 8, .dp = 3, .dp_inside_tp = true}); }, "dp 3 does not divide tp 8");
  expect_refused([] { resolve({.tp = 8, .ep = 4, .expert_parallel = true}); }, "means tp * dp = 8");
  expect_refused([] { resolve({.tp = 8, .ep = 8, .moe_tp = 2}); }, "moe-tp 2 with tp 8, dp 1 and ep 8: expected 1");
  expect_refused([] { resolve({.tp = 1, .dp = 8, .moe_tp = 8}); }, "moe-tp 8");
  expect_refused([] { resolve({.tp = 0}); }, "tp 0: expected 1 to");
  expect_refused([] { resolve({.moe_tp = -1}); }, "moe-tp -1: expected 1 to");
}

// 12 heads cannot be cut into 5; TP 16 leaves half a head; both times single changes that work are named.
TEST(Layout, ImpossibleLayout_IsRefusedWithWhatWouldWork) {
  expect_refused([] { plan_layout(small_config(), {.tp = 16}); }, "(would work: tp 1, 2, 4, 8)");
  expect_refused([] { plan_layout(small_config(), {.ep = 32, .dp = 32}); }, "ep 1, 2, 4, 8, 16");
  expect_refused([] { plan_layout(small_config(), {.pp = 4}); }, "pp 1, 2");
  expect_refused([] { plan_layout(small_config(), {.tp = 7, .ep = 7, .pp = 9, .dp = 3}); }, "try dep8 or tep8");
}

TEST(Layout, EverySuggestion_Works) {
  const model::ModelConfig config = small_config();
  for (const int64_t tp : {1, 2, 4, 8}) {
    EXPECT_NO_THROW(plan_layout(config, {.tp = tp}));
  }
  EXPECT_EQ(plan_layout(config, {.tp = 2, .ep = 8, .dp = 4}).layout.num_ranks(), 8);
}

// FP8 blocks: 18432 / 32 = 576 = 4.5 blocks (vllm 12256 and others); 128 heads / 32 is fine.
TEST(Layout, DeepSeekV3AtTp32_IsRefusedForItsBlocks) {
  expect_refused([] { plan_layout(model::built_in_config("deepseek-v3"), {.tp = 32}); }, "128");
  expect_refused([] { plan_layout(model::built_in_config("deepseek-v3"), {.tp = 32}); }, "tp 1, 2, 4, 8, 16)");
}

}  // namespace
}  // namespace simulator
