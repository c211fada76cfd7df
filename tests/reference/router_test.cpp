#include "reference/ops/router.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

using Ids = std::vector<int32_t>;

// `num_experts` experts in `num_groups` groups of which `kept` are kept; k experts a token.
struct Router {
  HandMadeOp op;

  Router(int64_t num_experts, int64_t num_groups, int64_t kept, int64_t k) {
    auto& config = op.config();
    config.n_routed_experts = num_experts;
    config.n_group = num_groups;
    config.topk_group = kept;
    config.num_experts_per_tok = k;
  }

  void set_bias(const std::vector<float>& bias) { op.set_weight(f32({static_cast<int64_t>(bias.size())}, bias)); }

  [[nodiscard]] model::TensorView run(model::OpKind kind, std::vector<model::TensorView> inputs) {
    op.op.kind = kind;
    return op.run(std::move(inputs));
  }
  [[nodiscard]] Ids groups(const model::TensorView& scores) {
    const auto ids = run(model::OpKind::kRouterGroups, {scores});
    const auto codes = ids.codes<int32_t>();
    return {codes.begin(), codes.end()};
  }
  // Through the groups when there are any.
  [[nodiscard]] Ids experts(const model::TensorView& scores) {
    std::vector<model::TensorView> inputs{scores};
    if (op.config().n_group > 1) {
      inputs.push_back(run(model::OpKind::kRouterGroups, {scores}));
    }
    const auto ids = run(model::OpKind::kRouterExperts, inputs);
    const auto codes = ids.codes<int32_t>();
    return {codes.begin(), codes.end()};
  }
};

model::TensorView row(const std::vector<float>& values) {
  return f32({1, static_cast<int64_t>(values.size())}, values);
}

// sigmoid(0) = 1/2, sigmoid(1) = 0.7310585786300049. In BF16 187/256 (187.15).
TEST(RouterScores, Sigmoid_IsRoundedByTheRule) {
  Router router(2, 1, 1, 1);
  EXPECT_EQ(numbers(router.run(model::OpKind::kRouterScores, {row({0, 1})})), (Numbers{0.5, 0.7310585786300049f}));
  router.op.rules.router = RouterRule::kBf16;
  const auto scores = router.run(model::OpKind::kRouterScores, {row({0, 1})});
  EXPECT_EQ(scores.dtype, model::DType::kBF16);
  EXPECT_EQ(numbers(scores), (Numbers{0.5, 187.0 / 256}));
}

// Logits 0 and ln 3: sigmoid 1/2 and 3/4, softmax 1/4 and 3/4.
TEST(RouterScores, ScoringFunction_IsTheConfigs) {
  Router router(2, 1, 1, 1);
  const auto logits = row({0, 1.0986122886681098f});
  EXPECT_NEAR(numbers(router.run(model::OpKind::kRouterScores, {logits}))[0], 0.5, 1e-7);
  EXPECT_NEAR(numbers(router.run(model::OpKind::kRouterScores, {logits}))[1], 0.75, 1e-7);
  router.op.config().scoring_func = model::ScoringFunction::kSoftmax;
  EXPECT_NEAR(numbers(router.run(model::OpKind::kRouterScores, {logits}))[0], 0.25, 1e-7);
  EXPECT_NEAR(numbers(router.run(model::OpKind::kRouterScores, {logits}))[1], 0.75, 1e-7);
}

// With biases 0.4 and 0: 0.9 against 0.75, or 0.65 against 0.75.
TEST(RouterScores, ScoringFunction_CanDecideTheChoice) {
  Router router(2, 1, 1, 1);
  router.set_bias({0.4f, 0});
  const auto logits = row({0, 1.0986122886681098f});
  EXPECT_EQ(router.experts(router.run(model::OpKind::kRouterScores, {logits})), Ids{0});
  router.op.config().scoring_func = model::ScoringFunction::kSoftmax;
  EXPECT_EQ(router.experts(router.run(model::OpKind::kRouterScores, {logits})), Ids{1});
}

// Every token has its own denominator: two rows of logits far apart.
TEST(RouterScores, Softmax_IsRowByRow) {
  Router router(2, 1, 1, 1);
  router.op.config().scoring_func = model::ScoringFunction::kSoftmax;
  EXPECT_EQ(numbers(router.run(model::OpKind::kRouterScores, {f32({2, 2}, {500, 500, -500, -500})})),
            (Numbers{0.5, 0.5, 0.5, 0.5}));
}

// Group 0 has the largest score, group 1 the larger sum of two: 1.0 against 1.2.
TEST(RouterGroups, GroupScore_IsTheSumOfTheTwoLargest) {
  Router router(6, 2, 1, 1);
  const auto scores = row({0.9f, 0.1f, 0, 0.6f, 0, 0.6f});
  EXPECT_EQ(router.groups(scores), Ids{1});
  router.op.config().topk_method = model::TopkMethod::kGroupLimitedGreedy;
  EXPECT_EQ(router.groups(scores), Ids{0});
}

// The third largest score of a group counts nothing: sums 1.0 against 1.1, though all of group 0 together has 1.5.
TEST(RouterGroups, ThirdScore_DoesNotCount) {
  Router router(6, 2, 1, 1);
  EXPECT_EQ(router.groups(row({0.5f, 0.5f, 0.5f, 1, 0.1f, 0})), Ids{1});
}

// Scores 0.5 + bias. Group sums: 0: -3, 1: -0.75 - 1 = -1.75, 2: -0.625 - 0.75 = -1.375, 3: -3. Kept: 2, 1. Among their
// experts 8 (-0.625), 5 and 10 (-0.75, tie), 4 (-1). A mask of 0 instead of -inf would choose from the dropped groups.
TEST(RouterExperts, NegativeBiasedScores_NeverLetADroppedGroupIn) {
  Router router(16, 4, 2, 4);
  router.set_bias({-2, -2, -2, -2, -1.5f, -1.25f, -1.75f, -1.875f, -1.125f, -1.625f, -1.25f, -2, -2, -2, -2, -2});
  const auto scores = row(std::vector<float>(16, 0.5f));
  EXPECT_EQ(router.groups(scores), (Ids{2, 1}));
  EXPECT_EQ(router.experts(scores), (Ids{8, 5, 10, 4}));
}

// Bias 10 decides that expert 1 is chosen; its weight is its score. (Both biased: (0.25 + 10) or a normalised mixture
// of it.)
TEST(RouterWeights, Bias_IsOnlyForTheSelection) {
  Router router(3, 1, 1, 2);
  router.set_bias({0, 10, 5});
  const auto scores = row({0.9f, 0.125f, 0.375f});
  EXPECT_EQ(router.experts(scores), (Ids{1, 2}));
  EXPECT_EQ(numbers(router.run(model::OpKind::kRouterWeights, {scores, i32({1, 2}, {1, 2})})), (Numbers{0.25, 0.75}));
}

// 4 and 4 + 2^-10 are one number in BF16. Equal scores: the second expert wins only if the bias kept its FP32 bits.
TEST(RouterExperts, BiasesCloserThanABf16Step_Decide) {
  Router router(2, 1, 1, 1);
  router.set_bias({4, 4 + 0x1p-10f});
  EXPECT_EQ(router.experts(row({0.5f, 0.5f})), Ids{1});
}

TEST(RouterExperts, Ties_GoToTheLowerId) {
  Router router(4, 1, 1, 3);
  EXPECT_EQ(router.experts(row({0.25f, 0.5f, 0.25f, 0.5f})), (Ids{1, 3, 0}));
  Router grouped(6, 3, 2, 2);
  EXPECT_EQ(grouped.groups(row(std::vector<float>(6, 0.5f))), (Ids{0, 1}));
}

// sigmoid(-120) = 7.7e-53 is 0 in FP32: every score 0, weight 0 / (0 + 1e-20) = 0. sigmoid(-100) = 3.7e-44 is a
// subnormal.
TEST(RouterWeights, AllScoresUnderflow_AreFinite) {
  Router router(3, 1, 1, 2);
  router.op.config().routed_scaling_factor = 2.5;
  for (const float logit : {-120.0f, -100.0f}) {
    const auto scores = router.run(model::OpKind::kRouterScores, {row({logit, logit, logit})});
    EXPECT_EQ(router.experts(scores), (Ids{0, 1}));
    for (const double weight : numbers(router.run(model::OpKind::kRouterWeights, {scores, i32({1, 2}, {0, 1})}))) {
      EXPECT_GE(weight, 0);
      EXPECT_LT(weight, 1e-22);  // 3.8e-44 / 1e-20 * 2.5 = 9.5e-24
    }
  }
}

// Scores 3/8 and 1/8: divided by their sum 3/4 and 1/4; times 2 or not.
TEST(RouterWeights, NormalisationAndScaling_AreIndependent) {
  Router router(2, 1, 1, 2);
  const auto scores = row({0.125f, 0.375f});
  const auto weights = [&](bool normalised, double factor) {
    router.op.config().norm_topk_prob = normalised;
    router.op.config().routed_scaling_factor = factor;
    return numbers(router.run(model::OpKind::kRouterWeights, {scores, i32({1, 2}, {1, 0})}));
  };
  EXPECT_EQ(weights(true, 1), (Numbers{0.75, 0.25}));
  EXPECT_EQ(weights(true, 2), (Numbers{1.5, 0.5}));
  EXPECT_EQ(weights(false, 1), (Numbers{0.375, 0.125}));
  EXPECT_EQ(weights(false, 2), (Numbers{0.75, 0.25}));
}

// ids must be distinct even where nothing can be compared; numbers come before NaN.
TEST(RouterExperts, NanScores_GiveDistinctIdsAfterTheNumbers) {
  Router router(4, 1, 1, 3);
  EXPECT_EQ(router.experts(row({kNaN, 0.25f, kNaN, 0.5f})), (Ids{3, 1, 0}));
  EXPECT_EQ(router.experts(row({kNaN, kNaN, kNaN, kNaN})), (Ids{0, 1, 2}));
}

// Rank by counting: how many of the candidates are better, or equal with a lower id.
template <typename Better>
Ids by_counting(const Ids& candidates, int64_t count, const Better& better) {
  Ids chosen(static_cast<size_t>(count), -1);
  for (const int32_t id : candidates) {
    const auto rank =
        std::count_if(candidates.begin(), candidates.end(), [&](int32_t other) { return better(other, id); });
    if (rank < count) {
      chosen[static_cast<size_t>(rank)] = id;
    }
  }
  return chosen;
}

// All 40320 orders of 8 scores, which include ties of groups (0.1 + 0.8 = 0.2 + 0.7 in integers), against counting.
TEST(Router, EveryOrderOfEightScores_MatchesBruteForce) {
  std::vector<int32_t> order{1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> all;
  do {
    all.insert(all.end(), order.begin(), order.end());
  } while (std::next_permutation(order.begin(), order.end()));
  const auto scores = f32({static_cast<int64_t>(all.size()) / 8, 8}, all);

  for (const auto& [num_groups, kept, k] : {std::array<int64_t, 3>{2, 1, 3}, {4, 2, 3}, {4, 1, 2}, {4, 3, 5}}) {
    for (const auto method : {model::TopkMethod::kNoauxTc, model::TopkMethod::kGroupLimitedGreedy}) {
      Router router(8, num_groups, kept, k);
      router.op.config().topk_method = method;
      const Ids groups = router.groups(scores);
      const Ids experts = router.experts(scores);
      const int64_t group_len = 8 / num_groups;
      Ids group_ids(static_cast<size_t>(num_groups));
      std::iota(group_ids.begin(), group_ids.end(), 0);
      for (size_t t = 0; t < all.size() / 8; ++t) {
        const auto score = [&](int32_t id) { return all[t * 8 + static_cast<size_t>(id)]; };
        // The sum of the two largest is the largest sum of any two.
        const auto group_score = [&](int32_t group) {
          float best = 0;
          for (int64_t i = 0; i < group_len; ++i) {
            for (int64_t j = 0; j < group_len; ++j) {
              const float first = score(static_cast<int32_t>(group * group_len + i));
              const float second = score(static_cast<int32_t>(group * group_len + j));
              best = std::max(best,
                              method == model::TopkMethod::kGroupLimitedGreedy ? first
                              : i != j                                         ? first + second
                                                                               : 0);
            }
          }
          return best;
        };
        const auto kept_groups = by_counting(group_ids, kept, [&](int32_t a, int32_t b) {
          return group_score(a) > group_score(b) || (group_score(a) == group_score(b) && a < b);
        });
        Ids candidates;
        for (const int32_t group : kept_groups) {
          for (int64_t i = 0; i < group_len; ++i) {
            candidates.push_back(static_cast<int32_t>(group * group_len + i));
          }
        }
        const auto chosen = by_counting(candidates, k, [&](int32_t a, int32_t b) { return score(a) > score(b); });
        ASSERT_TRUE(std::equal(kept_groups.begin(), kept_groups.end(), groups.begin() + static_cast<int64_t>(t) * kept))
            << t;
        ASSERT_TRUE(std::equal(chosen.begin(), chosen.end(), experts.begin() + static_cast<int64_t>(t) * k)) << t;
      }
    }
  }
}

// Experts under other names, without ties: groups change places, and experts inside each group. The choice is the same under the new
// names, in the same order, with the same weights.
TEST(Router, RelabelledExperts_AreChosenUnderTheirNewNames) {
  Router router(12, 3, 2, 4);
  const std::vector<float> scores{0.31f, 0.72f, 0.11f, 0.54f, 0.93f, 0.42f, 0.24f, 0.66f, 0.85f, 0.05f, 0.37f, 0.48f};
  const std::vector<float> bias{0.06f, -0.2f, 0.3f, -0.01f, -0.43f, 0.17f, 0.02f, -0.12f, -0.5f, 0.22f, 0.11f, -0.03f};
  const std::vector<int32_t> new_name{9, 11, 8, 10, 2, 0, 3, 1, 7, 4, 6, 5};
  std::vector<float> new_scores(12);
  std::vector<float> new_bias(12);
  for (size_t e = 0; e < 12; ++e) {
    new_scores[static_cast<size_t>(new_name[e])] = scores[e];
    new_bias[static_cast<size_t>(new_name[e])] = bias[e];
  }
  router.set_bias(bias);
  Ids expected = router.experts(row(scores));
  const auto expected_weights =
      router.run(model::OpKind::kRouterWeights, {row(scores), i32({1, 4}, {expected.begin(), expected.end()})});
  std::ranges::transform(expected, expected.begin(), [&](int32_t e) { return new_name[static_cast<size_t>(e)]; });
  router.set_bias(new_bias);
  EXPECT_EQ(router.experts(row(new_scores)), expected);
  const auto weights = router.run(model::OpKind::kRouterWeights, {row(new_scores), i32({1, 4}, expected)});
  EXPECT_EQ(numbers(weights), numbers(expected_weights));
}

}  // namespace
}  // namespace reference
