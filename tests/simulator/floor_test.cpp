#include "simulator/floor.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "simulator/walk_tables.hpp"
#include "tests/simulator/small_config.hpp"

namespace simulator {
namespace {

using model::ParallelLayout;
using model::ParallelPlan;

// 1 TB/s of memory: 1e6 bytes a microsecond. 100 TFLOPS: 1e8 a microsecond. NVLink 1e5, network 1e4 bytes a microsecond.
Hardware round_numbers() {
  return {.name = "round",
          .title = "Round",
          .bf16_dense_tflops = {100, "test"},
          .fp8_dense_tflops = Figure{200, "test"},
          .memory_gb = {64, "test"},
          .memory_gb_per_s = {1000, "test"},
          .nvlink_gb_per_s = {100, "test"},
          .nvlink_domain_gpus = {4, "test"},
          .nic_gb_per_s = {10, "test"}};
}

struct Floored {
  Walk steps;
  std::vector<Floor> floors;

  [[nodiscard]] const Floor& at(const std::string& id) const {
    const auto found = std::ranges::find(steps.steps, id, &WalkStep::id);
    EXPECT_NE(found, steps.steps.end()) << id;
    return floors[static_cast<size_t>(found - steps.steps.begin())];
  }
};

Floored floored(const ParallelLayout& layout, const StepShape& shape, const Hardware& hardware = round_numbers()) {
  const ParallelPlan plan = model::parallel_plan(small_config(), layout);
  Walk steps = walk(plan, shape);
  std::vector<Floor> floors = walk_floors(steps, plan.config, hardware);
  return {std::move(steps), std::move(floors)};
}

constexpr StepShape kOneToken{.num_cached = 1023};

// q_a is 256 x 512 FP8 codes and 2 x 4 scales.
TEST(Floor, SmallBatch_IsLimitedByMemory) {
  const Floor floor = floored({}, kOneToken).at("layer.1.attn.q_a");
  EXPECT_DOUBLE_EQ(floor.time_us, (256 * 512 + 8 * 4) / 1e6);
  EXPECT_EQ(floor.bound, Bound::kMemory);
}

// 4096 tokens x 256 x 512 products at the FP8 peak; the router multiplies in BF16.
TEST(Floor, LargeBatch_IsLimitedByThePeakOfItsFormat) {
  const Floored result = floored({}, {.phase = Phase::kPrefill, .num_new = 4096});
  EXPECT_DOUBLE_EQ(result.at("layer.1.attn.q_a").time_us, 2.0 * 4096 * 256 * 512 / 2e8);
  EXPECT_EQ(result.at("layer.1.attn.q_a").bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(result.at("layer.1.moe.router_logits").time_us, 2.0 * 4096 * 16 * 512 / 1e8);
}

TEST(Floor, GpuWithoutFp8_MultipliesAsBf16) {
  Hardware hardware = round_numbers();
  hardware.fp8_dense_tflops.reset();
  const Floored result = floored({}, {.phase = Phase::kPrefill, .num_new = 4096}, hardware);
  EXPECT_DOUBLE_EQ(result.at("layer.1.attn.q_a").time_us, 2.0 * 4096 * 256 * 512 / 1e8);
}

// 1024 positions of 384 BF16 values, 8 heads x (384 + 256) products: the cache is read once and outweighs the products.
TEST(Floor, AbsorbedAttention_ReadsTheCacheOnce) {
  const Floored result = floored({}, kOneToken);
  EXPECT_DOUBLE_EQ(result.at("layer.1.attn.probs").time_us, 1024 * 384 * 2 / 1e6);
  EXPECT_EQ(result.at("layer.1.attn.o_latent").time_us, 0);
  EXPECT_EQ(result.at("layer.1.attn.lse").time_us, 0);
}

TEST(Floor, AttentionThatComputesLonger_AddsItsValuesProducts) {
  Hardware hardware = round_numbers();
  hardware.memory_gb_per_s.value = 1e6;
  const Floored result = floored({}, kOneToken, hardware);
  EXPECT_DOUBLE_EQ(result.at("layer.1.attn.probs").time_us, 2.0 * 1024 * 8 * 384 / 1e8);
  EXPECT_NEAR(result.at("layer.1.attn.o_latent").time_us, 2.0 * 1024 * 8 * 256 / 1e8, 1e-9);
}

// 4 ranks in one domain send 2 x 3/4 of 1024 bytes. 8 ranks on two domains: 2 x 3/4 inside, and 2 x 1/2 of a quarter between.
TEST(Floor, AllReduce_UsesNvlinkInsideAndTheNetworkBetweenDomains) {
  const Floor inside = floored({.tp = 4}, kOneToken).at("layer.1.attn.o_proj.all_reduce");
  EXPECT_DOUBLE_EQ(inside.time_us, 1.5 * 1024 / 1e5);
  EXPECT_EQ(inside.bound, Bound::kNvlink);
  const Floor between = floored({.tp = 8}, kOneToken).at("layer.1.attn.o_proj.all_reduce");
  EXPECT_DOUBLE_EQ(between.time_us, 1024.0 / 4 / 1e4);
  EXPECT_EQ(between.bound, Bound::kNetwork);
}

// In one domain 3/4 of 4 copies of 512 + 16 bytes leave the GPU.
TEST(Floor, AllToAllInOneDomain_UsesNvlink) {
  const Floor floor = floored({.ep = 4, .dp = 4}, kOneToken).at("layer.1.moe.dispatch");
  EXPECT_DOUBLE_EQ(floor.time_us, 3 * 528 / 1e5);
  EXPECT_EQ(floor.bound, Bound::kNvlink);
}

TEST(Floor, SendBetweenDomains_UsesTheNetwork) {
  EXPECT_EQ(floored({.tp = 2, .pp = 2}, kOneToken).at("layer.1.output.send").bound, Bound::kNvlink);
  const Floor floor = floored({.tp = 4, .pp = 2}, kOneToken).at("layer.1.output.send");
  EXPECT_EQ(floor.bound, Bound::kNetwork);
  EXPECT_DOUBLE_EQ(floor.time_us, 1024 / 1e4);
}

TEST(Floor, FasterHardware_IsNeverSlower) {
  const ParallelLayout layout{.tp = 2, .ep = 8, .pp = 2, .dp = 4, .sequence_parallel = true};
  const StepShape shape{.num_sequences = 64, .num_cached = 500};
  const Floored base = floored(layout, shape);
  for (Figure Hardware::*figure : {&Hardware::bf16_dense_tflops,
                                   &Hardware::memory_gb_per_s,
                                   &Hardware::nvlink_gb_per_s,
                                   &Hardware::nic_gb_per_s}) {
    Hardware faster = round_numbers();
    (faster.*figure).value *= 2;
    const Floored result = floored(layout, shape, faster);
    double sum = 0;
    for (size_t i = 0; i < result.floors.size(); ++i) {
      sum += result.floors[i].time_us - base.floors[i].time_us;
    }
    EXPECT_LT(sum, 0);
  }
}

TEST(WalkTables, EqualNeighbourLayers_ShareTheirRows) {
  const ParallelPlan plan = model::parallel_plan(small_config(), {});
  const Walk steps = walk(plan, kOneToken);
  const Hardware hardware = round_numbers();
  const Table merged = walk_tables({plan, steps, hardware, true})[1];
  const Table full = walk_tables({plan, steps, hardware, false})[1];
  EXPECT_EQ(full.rows.size(), steps.steps.size());
  const auto rows_of = [](const Table& table, const Cell& layer) {
    return std::ranges::count_if(table.rows, [&](const auto& row) { return row[1] == layer; });
  };
  EXPECT_EQ(rows_of(merged, std::string("1-2")), rows_of(full, int64_t{1}));
  EXPECT_EQ(rows_of(merged, std::string("0")), rows_of(full, int64_t{0}));
  EXPECT_EQ(merged.rows.size() + static_cast<size_t>(rows_of(full, int64_t{2})), full.rows.size());
}

}  // namespace
}  // namespace simulator
