#include "simulator/expert_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/check.hpp"
#include "model/config.hpp"
#include "simulator/op_call.hpp"
#include "simulator/placement_files.hpp"
#include "simulator/skew_tables.hpp"

namespace simulator {
namespace {

RankLoad load_of(int64_t rows, int64_t active) {
  return {.num_tokens = rows, .num_active_experts = active, .rows_per_expert = 0, .padded_rows = (rows + 63) / 64 * 64};
}

double decode_us(const char* gpu, const RankLoad& load) {
  return expert_time_model(load_hardware(gpu), "sglang-decode", {}, 0).time(load);
}

// ../shared/measurements/README.md, section 8, weight-read floor on H100: EP8 530 us (32 experts), EP64 85 us (4), EP128 54 us (2),
// EP256 35 us (1).
TEST(ExpertTime, FewRows_CostTheWeightRead) {
  EXPECT_NEAR(decode_us("h100", load_of(32, 32)), 530, 0.06 * 530);
  EXPECT_NEAR(decode_us("h100", load_of(4, 4)), 85, 0.06 * 85);
  EXPECT_NEAR(decode_us("h100", load_of(2, 2)), 54, 0.06 * 54);
  EXPECT_NEAR(decode_us("h100", load_of(1, 1)), 35, 0.12 * 35);
}

TEST(ExpertTime, MoreWork_IsNeverFaster) {
  for (const char* gpu : {"a100", "h100", "h800", "h20", "b200", "gb200-nvl72"}) {
    double before = 0;
    for (const int64_t rows : {0, 1, 64, 512, 4096, 65536}) {
      const double now = decode_us(gpu, load_of(rows, rows > 0 ? 8 : 0));
      EXPECT_GE(now, before) << gpu;
      EXPECT_GE(decode_us(gpu, load_of(rows, 9)), decode_us(gpu, load_of(rows, 8))) << gpu;
      before = now;
    }
  }
}

// The step model has a coarser formula of the same kernel, fitted to rows with equal experts alone (op_fit.hpp): where both apply, with up
// to 64 rows an expert, they may not drift apart.
TEST(ExpertTime, TheStepModelsFormula_AgreesOnEqualExperts) {
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  for (const char* gpu : {"h100", "h200", "b200", "gb200-nvl72"}) {
    const Hardware hardware = load_hardware(gpu);
    const auto fits = choose_fits(built_in_calibrations(), hardware);
    for (const int64_t experts : {1, 4, 32}) {
      for (const int64_t rows_each : {1, 16, 64}) {
        const double step_us =
            op_time(fits[static_cast<size_t>(OpFamily::kExperts)],
                    experts_call(config, static_cast<double>(experts), static_cast<double>(experts * rows_each), 1),
                    peaks(hardware))
                .time_us;
        const RankLoad load{.num_tokens = experts * rows_each,
                            .num_active_experts = experts,
                            .rows_per_expert = static_cast<double>(rows_each),
                            .padded_rows = 64 * experts};
        EXPECT_NEAR(decode_us(gpu, load) / step_us, 1, 0.15)
            << gpu << ", " << experts << " experts, " << rows_each << " rows";
      }
    }
  }
}

TEST(ExpertTime, GpuWithoutATable_IsScaledAndSaysSo) {
  EXPECT_TRUE(expert_time_model(load_hardware("h200"), "sglang-decode", {}, 0).is_measured);
  const ExpertTimeModel carried = expert_time_model(load_hardware("h800"), "sglang-decode", {}, 0);
  EXPECT_FALSE(carried.is_measured);
  EXPECT_NE(carried.source.find("scaled to h800"), std::string::npos);
  EXPECT_THROW(expert_time_model(load_hardware("h100"), "vllm", {}, 0), model::InputError);
}

// Real weights of one expert: 3 matrices of 7168 x 2048 are 44.04 M (V3's accounting).
TEST(ExpertTime, ExpertOfV3_HasItsWeights) {
  EXPECT_EQ(expert_weights(load_model("deepseek-v3")), 44040192);
}

TEST(PlacementFiles, AreWhatEnginesRead) {
  const Placement placement{.num_experts = 3, .num_ranks = 2, .expert_of_slot = {2, 0, 1, 2}};
  EXPECT_EQ(sglang_expert_location({placement}, 1), "{\"physical_to_logical_map\":[[0,1,2,0],[2,0,1,2]]}\n");
  EXPECT_EQ(
      vllm_expert_map({placement}),
      "{\"moe_layer_count\":1,\"layer_list\":[{\"layer_id\":0,\"device_count\":2,\"device_list\":[{\"device_id\":0,"
      "\"device_expert\":[2,0]},{\"device_id\":1,\"device_expert\":[1,2]}]}]}\n");
  EXPECT_THROW(sglang_expert_location({contiguous_placement(3, 2, 4, false)}, 0), model::InputError);
}

double cell(const Table& table, size_t row, const char* key) {
  const auto column = std::ranges::find(table.columns, key, &Column::key) - table.columns.begin();
  const Cell& found = table.rows[row][static_cast<size_t>(column)];
  return std::holds_alternative<int64_t>(found) ? static_cast<double>(std::get<int64_t>(found))
                                                : std::get<double>(found);
}

SkewOptions options_of(int64_t ep, int64_t tokens) {
  SkewOptions options;
  options.hardware = load_hardware("h100");
  options.eps = {ep};
  options.batches = {tokens};
  options.num_steps = 20;
  return options;
}

// TensorRT-LLM tech blog 04, R1 at EP32 with 256 tokens a rank: rank max/mean 2.564 without EPLB, 1.109 with 288 slots. The p50 of a
// skewed distribution lies below its mean; noise of 8192 tokens adds to EPLB's.
TEST(SkewTable, ReproducesR1sImbalance) {
  const Table table = skew_tables(load_model("deepseek-v3"), options_of(32, 256)).front();
  ASSERT_EQ(table.rows.size(), 4U);  // balanced, in order, EPLB, EPLB global
  EXPECT_NEAR(cell(table, 1, "rank_max_over_mean_p50"), 2.4, 0.3);
  EXPECT_LT(cell(table, 3, "rank_max_over_mean_p50"), 1.2);
  EXPECT_GT(cell(table, 1, "cost_ms"), cell(table, 3, "cost_ms"));
  EXPECT_EQ(cell(table, 3, "num_redundant"), 32);
  // 32 experts of 44.04 MB on 32 ranks in 58 layers.
  EXPECT_NEAR(cell(table, 3, "redundant_gb_per_rank"), 58 * 0.04404, 0.001);
  for (size_t row = 0; row < 4; ++row) {
    const double parts = cell(table, row, "dispatch_ms") + cell(table, row, "compute_ms") +
                         cell(table, row, "combine_ms") + cell(table, row, "wait_ms");
    EXPECT_NEAR(parts, cell(table, row, "step_ms_p50"), 0.1 * parts);
    EXPECT_LE(cell(table, row, "step_ms_p50"), cell(table, row, "step_ms_p99"));
  }
}

// Bug bank 104 and the brief: 48 does not divide 256.
TEST(SkewTable, EpThatDoesNotDivide_SaysWhatWouldWork) {
  const DescribedModel v3 = load_model("deepseek-v3");
  try {
    skew_tables(v3, options_of(48, 32));
    FAIL() << "accepted";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("--redundant-experts 32"), std::string::npos) << error.what();
  }
  SkewOptions padded = options_of(48, 32);
  padded.is_padded = true;
  EXPECT_EQ(skew_tables(v3, padded).front().rows.size(), 4U);
  SkewOptions redundant = options_of(72, 32);
  redundant.num_redundant = 32;
  EXPECT_EQ(skew_tables(v3, redundant).front().rows.size(), 4U);
}

TEST(SkewTable, StaleStatistics_BalanceWorse) {
  SkewOptions options = options_of(32, 256);
  options.rebalance_steps = {10, 2000, 20000};
  const Table table = skew_tables(load_model("deepseek-v3"), options)[1];
  ASSERT_EQ(table.rows.size(), 3U);
  EXPECT_LT(cell(table, 0, "rank_max_over_mean_p50"), cell(table, 1, "rank_max_over_mean_p50"));
  EXPECT_LT(cell(table, 1, "rank_max_over_mean_p50"), cell(table, 2, "rank_max_over_mean_p50"));
  EXPECT_GT(cell(table, 0, "move_ms_per_step"), cell(table, 2, "move_ms_per_step"));
}

TEST(SkewTable, BiasControl_BringsTheLoadTogether) {
  SkewOptions options = options_of(32, 32);
  options.gammas = {0.02};
  const Table table = skew_tables(load_model("deepseek-v3"), options)[1];
  EXPECT_LT(cell(table, table.rows.size() - 1, "expert_max_over_mean"), 0.5 * cell(table, 0, "expert_max_over_mean"));
}

}  // namespace
}  // namespace simulator
