#include "simulator/moe_curve.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace simulator {
namespace {

constexpr Router kRouter{.num_experts = 64, .experts_per_token = 4, .num_groups = 1, .kept_groups = 1};

// 10 us, and 1 us for each active expert.
MoeDeployment deployment(int64_t num_ranks, bool has_all_to_all) {
  return {.hardware = load_hardware("h100"),
          .num_ranks = num_ranks,
          .has_all_to_all = has_all_to_all,
          .router = kRouter,
          .expert_time = [](const RankLoad& load) { return 10.0 + static_cast<double>(load.num_active_experts); }};
}

// Between grid points (256 and 362) the answer lies between theirs; on a grid point it is the sample itself.
TEST(MoeCurve, BetweenGridPoints_IsInterpolated) {
  MoeCurve curve(deployment(8, true), {}, {.num_slots = 64});
  const double low_us = curve.at(256).total_us();
  const double high_us = curve.at(362).total_us();
  const double middle_us = curve.at(309).total_us();
  EXPECT_NEAR(middle_us, (low_us + high_us) / 2, 1e-9 * middle_us);
  EXPECT_LT(low_us, high_us);
}

// All tokens on one rank: no exchange, nobody to wait for, all rows its own.
TEST(MoeCurve, OneRank_NeitherSendsNorWaits) {
  MoeCurve curve(deployment(1, false), {}, {.num_slots = 64});
  const MoeLayerTime layer = curve.at(128);
  EXPECT_EQ(layer.dispatch_us, 0);
  EXPECT_EQ(layer.combine_us, 0);
  EXPECT_EQ(layer.wait_us, 0);
  EXPECT_NEAR(layer.mean_rows, 128 * 4, 1e-9);
  EXPECT_NEAR(layer.compute_us, 10 + layer.mean_active_experts, 1e-9);
}

// Token copies are conserved: ranks times the mean rows is tokens times k, wherever experts lie.
TEST(MoeCurve, CopiesOfAllRanks_AreTokensTimesK) {
  for (const bool eplb : {false, true}) {
    MoeCurve curve(deployment(16, true), {}, {.num_slots = 80, .eplb = eplb});
    EXPECT_NEAR(16 * curve.at(512).mean_rows, 512 * 4, 1e-6) << eplb;
  }
}

// One token reaches exactly its 4 experts.
TEST(MoeCurve, OneToken_ActivatesItsExperts) {
  MoeCurve curve(deployment(8, false), {}, {.num_slots = 64});
  EXPECT_NEAR(8 * curve.at(1).mean_active_experts, 4, 1e-9);
  EXPECT_EQ(curve.at(0.25).total_us(), curve.at(1).total_us());
}

TEST(MoeCurves, TheSameSpread_IsSampledOnce) {
  MoeCurves curves;
  MoeCurve& first = curves.curve(deployment(8, true), {.num_slots = 64}, {});
  EXPECT_EQ(&first, &curves.curve(deployment(8, true), {.num_slots = 64}, {}));
  EXPECT_NE(&first, &curves.curve(deployment(8, true), {.num_slots = 64, .eplb = true}, {}));
  MoeDeployment faster = deployment(8, true);
  faster.hardware.nvlink_gb_per_s.value *= 2;
  EXPECT_NE(&first, &curves.curve(faster, {.num_slots = 64}, {}));
}

}  // namespace
}  // namespace simulator
