#include "simulator/expert_sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "simulator/eplb.hpp"
#include "simulator/skew.hpp"
#include "simulator/traffic.hpp"

namespace simulator {
namespace {

const Router kV3{.num_experts = 256, .experts_per_token = 8, .num_groups = 8, .kept_groups = 4};

TEST(CounterRandom, MomentsAreThoseOfTheDistributions) {
  constexpr int kDraws = 200000;
  CounterRandom random(1);
  double sum = 0;
  double square = 0;
  double normal_square = 0;
  double below_half = 0;
  double binomial = 0;
  double binomial_square = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double uniform = random.uniform();
    sum += uniform / kDraws;
    square += uniform * uniform / kDraws;
    const double normal = random.normal();
    normal_square += normal * normal / kDraws;
    below_half += normal < 0.5 ? 1.0 / kDraws : 0;
    const auto count = static_cast<double>(random.binomial(20, 0.3));
    binomial += count / kDraws;
    binomial_square += count * count / kDraws;
  }
  // Four standard errors of 200,000 draws.
  EXPECT_NEAR(sum, 0.5, 4 * 0.289 / 447);
  EXPECT_NEAR(square, 1.0 / 3, 4 * 0.298 / 447);
  EXPECT_NEAR(normal_square, 1, 4 * 1.414 / 447);
  EXPECT_NEAR(below_half, 0.69146, 4 * 0.462 / 447);
  EXPECT_NEAR(binomial, 6, 4 * 2.05 / 447);
  EXPECT_NEAR(binomial_square - binomial * binomial, 4.2, 4 * 5.9 / 447);
}

// Exact binomial probabilities of Binomial(40, 0.05): P(0) = 0.95^40, P(1) = 40 * 0.05 * 0.95^39.
TEST(CounterRandom, Binomial_SmallMean_IsExact) {
  constexpr int kDraws = 100000;
  CounterRandom random(2);
  double none = 0;
  double one = 0;
  for (int i = 0; i < kDraws; ++i) {
    const int64_t count = random.binomial(40, 0.05);
    none += count == 0 ? 1.0 / kDraws : 0;
    one += count == 1 ? 1.0 / kDraws : 0;
  }
  EXPECT_NEAR(none, std::pow(0.95, 40), 4 * 0.335 / 316);
  EXPECT_NEAR(one, 40 * 0.05 * std::pow(0.95, 39), 4 * 0.45 / 316);
  EXPECT_EQ(random.binomial(10, 0), 0);
  EXPECT_EQ(random.binomial(10, 1), 10);
}

TEST(ExpertSampler, TokensAreConserved) {
  for (const char* form : {"balanced", "lognormal:1.05", "lognormal:3"}) {
    const auto popularity = layer_popularity(parse_skew(form), 256, 8, 1024, 0, 4);
    for (const int64_t tokens : {1, 7, 32, 33, 1024, 40000}) {
      CounterRandom random(3, tokens);
      const auto counts = sample_expert_counts(popularity, tokens, 8, random);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), tokens * 8) << form << ", " << tokens;
      EXPECT_GE(*std::ranges::min_element(counts), 0);
      EXPECT_LE(*std::ranges::max_element(counts), tokens) << "an expert gets at most one copy of a token";
    }
  }
}

// E (1 - (1 - k/E)^B) for uniform routing: 57.4 at B = 8, 163.3 at B = 32, 222.4 at B = 64 (values of the V3 accounting).
TEST(ExpertSampler, UniformRouting_ActivatesTheExpectedExperts) {
  const std::vector<double> even(256, 1.0 / 256);
  for (const auto& [tokens, expected] : {std::pair{8, 57.4}, std::pair{32, 163.3}, std::pair{64, 222.4}}) {
    double active = 0;
    constexpr int kDraws = 2000;
    for (int i = 0; i < kDraws; ++i) {
      CounterRandom random(6, tokens, i);
      const auto counts = sample_expert_counts(even, tokens, 8, random);
      active += static_cast<double>(std::ranges::count_if(counts, [](int64_t count) { return count > 0; })) / kDraws;
    }
    // Above 32 tokens choices are drawn as if independent, which activates 256 (1 - (1 - 1/256)^(8 B)), 1 % less at B = 64.
    EXPECT_NEAR(active, expected, tokens > 32 ? 0.01 * expected : 0.3) << tokens;
  }
}

TEST(RouteToken, ChoosesDifferentExpertsOfAtMostFourGroups) {
  CounterRandom random(7);
  const std::vector<double> weights(256, 0.01);
  for (int i = 0; i < 500; ++i) {
    const auto chosen = route_token(kV3, weights, {}, random);
    std::set<int64_t> experts(chosen.begin(), chosen.end());
    std::set<int64_t> groups;
    for (const int64_t expert : chosen) {
      groups.insert(expert / 32);
    }
    EXPECT_EQ(experts.size(), 8U);
    EXPECT_LE(groups.size(), 4U);
  }
}

// routing.hpp has the nodes that a token reaches if groups are kept at random: 3.63 of 4 on 8 nodes with one group each. A group is
// kept for its two best experts, which then are among the chosen almost always, so a real router reaches more.
TEST(RouteToken, KeptGroups_AreReachedMoreOftenThanRandomOnes) {
  CounterRandom random(8);
  const std::vector<double> weights(256, 0.01);
  double reached = 0;
  constexpr int kTokens = 2000;
  for (int i = 0; i < kTokens; ++i) {
    std::set<int64_t> nodes;
    for (const int64_t expert : route_token(kV3, weights, {}, random)) {
      nodes.insert(expert / 32);
    }
    reached += static_cast<double>(nodes.size()) / kTokens;
  }
  EXPECT_GT(reached, copy_spread(kV3, 64, 8).nodes_reached);
  EXPECT_LE(reached, 4.0);
}

// Without groups, one choice of one expert: its chance is its share. Drawing k without repetition flattens that only a little.
TEST(RouteToken, SingleChoice_FollowsTheWeights) {
  const Router single{.num_experts = 4, .experts_per_token = 1};
  const std::vector<double> shares{0.1, 0.2, 0.3, 0.4};
  CounterRandom random(9);
  std::vector<double> seen(4, 0.0);
  constexpr int kTokens = 40000;
  for (int i = 0; i < kTokens; ++i) {
    seen[static_cast<size_t>(route_token(single, shares, {}, random)[0])] += 1.0 / kTokens;
  }
  for (size_t expert = 0; expert < 4; ++expert) {
    EXPECT_NEAR(seen[expert], shares[expert], 4 * 0.5 / 200) << expert;
  }
}

TEST(SlotCounts, CopiesShareEvenly_AndNothingIsLost) {
  const Placement placement{.num_experts = 2, .num_ranks = 2, .expert_of_slot = {0, 1, 0, Placement::kEmptySlot}};
  EXPECT_EQ(slot_counts({5, 3}, placement, 0), (std::vector<int64_t>{3, 3, 2, 0}));
  EXPECT_EQ(slot_counts({5, 3}, placement, 1), (std::vector<int64_t>{2, 3, 3, 0}));
}

}  // namespace
}  // namespace simulator
