#include "simulator/moe_layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/check.hpp"
#include "simulator/eplb.hpp"
#include "simulator/expert_sampler.hpp"
#include "simulator/skew.hpp"

namespace simulator {
namespace {

// 20 us, 16 us for each expert read, 0.06 us a row, whichever is more: any monotonic function serves here.
double simple_expert_time(const RankLoad& load) {
  return 20 +
         std::max(16.0 * static_cast<double>(load.num_active_experts), 0.06 * static_cast<double>(load.num_tokens));
}

MoeDeployment deployment_of(int64_t num_ranks, int64_t tokens_per_rank) {
  return {.hardware = load_hardware("h100"),
          .num_ranks = num_ranks,
          .tokens_per_rank = static_cast<double>(tokens_per_rank),
          .router = {.num_experts = 256, .experts_per_token = 8, .num_groups = 8, .kept_groups = 4},
          .expert_time = simple_expert_time};
}

MoeLayer layer_of(const char* skew, int64_t num_ranks, uint64_t seed) {
  return {.popularity = layer_popularity(parse_skew(skew), 256, 8, 4096, 0, seed),
          .placement = contiguous_placement(256, num_ranks, 256, false)};
}

double mean_total(const std::vector<MoeLayerTime>& samples) {
  double sum = 0;
  for (const MoeLayerTime& sample : samples) {
    sum += sample.total_us();
  }
  return sum / static_cast<double>(samples.size());
}

TEST(LayerTraffic, BytesSentEqualBytesReceived) {
  const MoeDeployment deployment = deployment_of(32, 64);
  const MoeLayer layer = layer_of("lognormal:1.05", 32, 1);
  const AllToAll all_to_all({.hardware = deployment.hardware, .num_ranks = 32});
  const LayerTraffic traffic(
      all_to_all, AllToAllBackend::kDeepEpLowLatency, deployment.router, layer.placement, 64, layer.popularity, 1);
  CounterRandom random(3);
  const auto counts = sample_expert_counts(layer.popularity, 32 * 64, 8, random);
  int64_t rows = 0;
  for (const RankLoad& load : traffic.loads(counts, 0)) {
    rows += load.num_tokens;
  }
  EXPECT_EQ(rows, 32 * 64 * 8) << "every copy is computed exactly once";
}

// By hand: 2 nodes of 8 ranks, 8 copies a token, all experts on rank 0 loaded with everything: rank 0 receives 16 * 10 * 8 copies, of
// which half come over the network; the others send half of theirs (node 1: all) and receive nothing.
TEST(LayerTraffic, HotReceiver_IsCountedOnItsTier) {
  const AllToAll all_to_all({.hardware = load_hardware("h100"), .num_ranks = 16});
  const Router router{.num_experts = 16, .experts_per_token = 8};
  const LayerTraffic traffic(all_to_all,
                             AllToAllBackend::kDeepEpLowLatency,
                             router,
                             contiguous_placement(16, 16, 16, false),
                             10,
                             std::vector<double>(16, 1.0 / 16),
                             1);
  std::vector<double> rows(16, 0.0);
  rows[0] = 1280;
  const std::vector<TierCopies> copies = traffic.copies(rows);
  EXPECT_DOUBLE_EQ(copies[0].network, 640);
  EXPECT_DOUBLE_EQ(copies[0].nvlink, 1280.0 * 7 / 16);
  EXPECT_DOUBLE_EQ(copies[3].network, 0);
  EXPECT_DOUBLE_EQ(copies[3].nvlink, 80);
  EXPECT_DOUBLE_EQ(copies[8].network, 80);
  EXPECT_DOUBLE_EQ(copies[8].nvlink, 0);
}

// With equal rows the copies are those that the tables' kernels move, whatever the back end.
TEST(LayerTraffic, EvenRows_MoveTheEvenCopies) {
  for (const auto backend : {AllToAllBackend::kDeepEpLowLatency,
                             AllToAllBackend::kDeepEpLowLatencyDedup,
                             AllToAllBackend::kDeepEpNormal,
                             AllToAllBackend::kAllGatherReduceScatter}) {
    const AllToAll all_to_all({.hardware = load_hardware("h100"), .backend = backend, .num_ranks = 32});
    const Router router{.num_experts = 256, .experts_per_token = 8};
    const LayerTraffic traffic(all_to_all,
                               backend,
                               router,
                               contiguous_placement(256, 32, 256, false),
                               16,
                               std::vector<double>(256, 1.0 / 256),
                               1);
    const TierCopies even = even_copies(all_to_all, backend, 32, 8, 16);
    for (const TierCopies& copies : traffic.copies(std::vector<double>(32, 128.0))) {
      EXPECT_NEAR(copies.network, even.network, 1e-9) << backend_name(backend);
      EXPECT_NEAR(copies.nvlink, even.nvlink, 1e-9) << backend_name(backend);
    }
  }
}

TEST(MoeLayer, SamplesDependOnSeedLayerAndStepAlone) {
  const MoeDeployment deployment = deployment_of(32, 32);
  const MoeLayer layer = layer_of("lognormal:1.05", 32, 1);
  const auto ten = sample_moe_layer(deployment, layer, 3, 10, 5);
  const auto four = sample_moe_layer(deployment, layer, 3, 4, 5);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ten[i].total_us(), four[i].total_us());
  }
  EXPECT_NE(ten[0].total_us(), sample_moe_layer(deployment, layer, 4, 1, 5)[0].total_us());
  EXPECT_NE(ten[0].total_us(), sample_moe_layer(deployment, layer, 3, 1, 6)[0].total_us());
}

TEST(MoeLayer, StepIsTheSumOfTheLayersMaxima) {
  const MoeDeployment deployment = deployment_of(32, 32);
  const std::vector<MoeLayer> layers{layer_of("lognormal:1.05", 32, 1), layer_of("lognormal:1.05", 32, 2)};
  const auto step = sample_moe_step(deployment, layers, 5, 9);
  const auto first = sample_moe_layer(deployment, layers[0], 0, 5, 9);
  const auto second = sample_moe_layer(deployment, layers[1], 1, 5, 9);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(step[i].total_us(), first[i].total_us() + second[i].total_us(), 1e-9);
    EXPECT_NEAR(step[i].wait_us, first[i].wait_us + second[i].wait_us, 1e-9);
  }
}

TEST(MoeLayer, SkewCostsTime_AndEplbTakesMostOfItBack) {
  const MoeDeployment deployment = deployment_of(32, 256);
  const MoeLayer balanced = layer_of("balanced", 32, 1);
  MoeLayer skewed = layer_of("lognormal:1.05", 32, 1);
  const double even = mean_total(sample_moe_layer(deployment, balanced, 0, 50, 1));
  const double plain = mean_total(sample_moe_layer(deployment, skewed, 0, 50, 1));
  skewed.placement = eplb_placement(skewed.popularity, {.num_slots = 288, .num_ranks = 32});
  const double eplb = mean_total(sample_moe_layer(deployment, skewed, 0, 50, 1));
  EXPECT_GT(plain, even);
  EXPECT_LT(eplb, plain);
  EXPECT_LT(eplb - even, 0.5 * (plain - even));
}

TEST(MoeLayer, FasterLinks_AreNeverSlower) {
  MoeDeployment deployment = deployment_of(32, 128);
  const MoeLayer layer = layer_of("lognormal:1.05", 32, 1);
  double before = 1e9;
  for (const double nic : {25.0, 50.0, 100.0, 400.0}) {
    deployment.hardware.nic_gb_per_s.value = nic;
    const double now = mean_total(sample_moe_layer(deployment, layer, 0, 20, 1));
    EXPECT_LE(now, before) << nic;
    before = now;
  }
}

// The analytic form against 500 samples: its mean is within 3 %. Its spread is an upper estimate: where almost all experts of a rank
// are active the number of those that are not is far from normal, and the form has up to three times the spread of the samples.
TEST(MoeLayer, AnalyticForm_AgreesWithSamples) {
  for (const int64_t ranks : {8, 32, 64}) {
    for (const int64_t tokens : {8, 64, 256}) {
      for (const char* skew : {"balanced", "lognormal:1.05"}) {
        const MoeDeployment deployment = deployment_of(ranks, tokens);
        const MoeLayer layer = layer_of(skew, ranks, 2);
        const auto samples = sample_moe_layer(deployment, layer, 0, 500, 1);
        const double mean = mean_total(samples);
        double square = 0;
        for (const MoeLayerTime& sample : samples) {
          square += (sample.total_us() - mean) * (sample.total_us() - mean) / 500;
        }
        const MoeLayerEstimate estimate = estimate_moe_layer(deployment, layer, 1);
        EXPECT_NEAR(estimate.mean.total_us(), mean, 0.03 * mean)
            << "EP" << ranks << ", " << tokens << " tokens, " << skew;
        EXPECT_LT(estimate.total_stddev_us, 3.5 * std::sqrt(square) + 0.5)
            << "EP" << ranks << ", " << tokens << ", " << skew;
        EXPECT_GT(estimate.total_stddev_us, 0.5 * std::sqrt(square) - 0.5)
            << "EP" << ranks << ", " << tokens << ", " << skew;
      }
    }
  }
}

TEST(MoeLayer, EpThatDoesNotDivide_WorksWithPaddingAndRedundancy) {
  for (const int64_t ranks : {48, 72, 144}) {
    const MoeDeployment deployment = deployment_of(ranks, 32);
    MoeLayer layer{.popularity = layer_popularity({}, 256, 8, 4096, 0, 1),
                   .placement = contiguous_placement(256, ranks, 288, false)};
    const double padded = mean_total(sample_moe_layer(deployment, layer, 0, 20, 1));
    layer.placement = eplb_placement(layer.popularity, {.num_slots = 288, .num_ranks = ranks});
    const double balanced = mean_total(sample_moe_layer(deployment, layer, 0, 20, 1));
    EXPECT_LT(balanced, padded) << ranks;
  }
}

// One kernel: never more than the products and all bytes one after another, never less than either, and the analytic form agrees.
TEST(MoeLayer, FusedKernel_HidesBytesBehindProducts) {
  MoeDeployment deployment = deployment_of(32, 128);
  const MoeLayer layer = layer_of("balanced", 32, 1);
  deployment.backend = AllToAllBackend::kDeepEpV2;  // sends the same bytes at the same rates
  const auto apart = sample_moe_layer(deployment, layer, 0, 50, 1);
  deployment.backend = AllToAllBackend::kFused;
  const auto fused = sample_moe_layer(deployment, layer, 0, 50, 1);
  for (size_t i = 0; i < fused.size(); ++i) {
    EXPECT_LT(fused[i].total_us(), apart[i].total_us());
    EXPECT_GT(fused[i].total_us(), apart[i].compute_us);
    EXPECT_EQ(fused[i].combine_us, 0);
  }
  EXPECT_NEAR(estimate_moe_layer(deployment, layer, 1).mean.total_us(), mean_total(fused), 0.03 * mean_total(fused));
  MoeDeployment slow = deployment;
  slow.hardware.nic_gb_per_s.value = 1;  // nothing hides
  const auto wire = sample_moe_layer(slow, layer, 0, 50, 1);
  slow.backend = AllToAllBackend::kDeepEpV2;
  EXPECT_LT(mean_total(wire), mean_total(sample_moe_layer(slow, layer, 0, 50, 1)));
  EXPECT_GT(mean_total(wire), 10 * mean_total(fused));
}

TEST(MoeLayer, NonsenseIsRefused) {
  MoeDeployment deployment = deployment_of(32, 0);
  EXPECT_THROW(sample_moe_layer(deployment, layer_of("balanced", 32, 1), 0, 1, 1), model::InputError);
  deployment = deployment_of(32, 8);
  deployment.backend = AllToAllBackend::kNvlinkOneSided;
  EXPECT_THROW(sample_moe_layer(deployment, layer_of("balanced", 32, 1), 0, 1, 1), model::InputError);
}

}  // namespace
}  // namespace simulator
