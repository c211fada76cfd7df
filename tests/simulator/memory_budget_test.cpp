// Bug bank rows 99 to 105: how other planners got the memory of MLA deployments wrong.
#include "simulator/memory_budget.hpp"

#include <gtest/gtest.h>

#include "simulator/deployment.hpp"

namespace simulator {
namespace {

MemoryBudget budget_of(const model::ModelConfig& config, const MemoryRequest& request, const RankLayout& rank) {
  return memory_budget(config, load_hardware("h200"), rank, request);
}

RankLayout tp8() {
  return {.layout = {.tp = 8}};
}

// Row 99 (LMCache 694): 61 layers x (512 + 64) values x 2 bytes, whole on every TP rank, not 2 x layers x 512.
TEST(MemoryBudget, CacheOfAToken_IsTheLatentAndTheRope) {
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  EXPECT_EQ(budget_of(config, {.tokens_per_sequence = 1}, tp8()).cache_bytes_per_sequence, 70272);
  RankLayout fp8 = tp8();
  fp8.kv_dtype = KvDtype::kFp8;
  EXPECT_EQ(budget_of(config, {.tokens_per_sequence = 1}, fp8).cache_bytes_per_sequence, 70272 / 2);
}

// Row 100 (aiconfigurator 912): the size comes from the config, 576 is nowhere.
TEST(MemoryBudget, CacheOfAnotherMlaModel_FollowsItsConfig) {
  model::ModelConfig config = model::built_in_config("deepseek-v3");
  config.kv_lora_rank = 256;
  config.qk_rope_head_dim = 32;
  EXPECT_EQ(budget_of(config, {.tokens_per_sequence = 1}, tp8()).cache_bytes_per_sequence, 61 * (256 + 32) * 2);
}

// Row 101 (SimAI 268): a request holds its prompt and its answer, so longer ones leave room for fewer.
TEST(MemoryBudget, LongerRequests_LeaveRoomForFewer) {
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  double before = 1e18;
  for (const double tokens : {1024.0, 4096.0, 16384.0, 131072.0}) {
    const double most = budget_of(config, {.tokens_per_sequence = tokens}, tp8()).max_sequences;
    EXPECT_LT(most, before);
    before = most;
  }
}

// Row 103 (aiconfigurator 1396): nobody may fill the whole card.
TEST(MemoryBudget, DefaultFraction_LeavesAReserve) {
  EXPECT_EQ(build_deployment({}).memory_frac, 0.92);
  EXPECT_LT(budget_of(model::built_in_config("deepseek-v3"), {}, tp8()).usable_bytes, 0.93 * 141 * (1 << 30));
}

// Row 105 (SGLang 11309): no item is forgotten in the total, and the side buffers are items.
TEST(MemoryBudget, ItemsAddUp) {
  RankLayout wide{.layout = {.tp = 1, .ep = 32, .dp = 32}};
  const MemoryBudget budget = budget_of(model::built_in_config("deepseek-v3"), {.sequences = 64}, wide);
  double sum = 0;
  bool has_buffers = false;
  for (const MemoryItem& item : budget.items) {
    EXPECT_GE(item.bytes, 0) << item.name;
    sum += item.bytes;
    has_buffers = has_buffers || item.name == "all-to-all buffers";
  }
  EXPECT_DOUBLE_EQ(sum, budget.total_bytes);
  EXPECT_TRUE(has_buffers);
}

}  // namespace
}  // namespace simulator
