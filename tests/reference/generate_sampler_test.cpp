// Which probabilities each filter leaves, worked out by hand, and how the draws fall.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/check.hpp"
#include "reference/generate/sampler.hpp"

namespace reference {
namespace {

using model::Sampling;
using Numbers = std::vector<double>;
using ::testing::ElementsAre;
using ::testing::Pointwise;

// Numbers of a few ulp: sums, quotients and two elementary functions lie between the hand-made value and the result.
MATCHER(IsAlmost, "") {
  return std::abs(std::get<0>(arg) - std::get<1>(arg)) <= 1e-14;
}

// Logits whose softmax is `probs`.
Numbers logits_of(const Numbers& probs) {
  Numbers logits;
  for (const double p : probs) {
    logits.push_back(std::log(p));
  }
  return logits;
}

const Numbers kProbs{0.15, 0.5, 0.05, 0.3};

Numbers remaining(Sampling sampling, const Numbers& probs = kProbs) {
  sampling.temperature = sampling.temperature == 0 ? 1 : sampling.temperature;
  return remaining_probabilities(sampling, logits_of(probs));
}

TEST(Penalties, WorkInTheOrderOfVllm) {
  const std::vector<int32_t> prompt{0};
  const std::vector<int32_t> generated{1, 1, 2};
  const Numbers logits{2, -2, 1, 0.5};
  const auto with = [&](Sampling sampling) { return penalised(sampling, {prompt, generated}, logits); };
  EXPECT_THAT(with({}), ElementsAre(2, -2, 1, 0.5));
  EXPECT_THAT(with({.repetition_penalty = 2}), ElementsAre(1, -4, 0.5, 0.5));
  EXPECT_THAT(with({.presence_penalty = 0.5}), ElementsAre(2, -2.5, 0.5, 0.5));
  EXPECT_THAT(with({.frequency_penalty = 0.25}), ElementsAre(2, -2.5, 0.75, 0.5));
  // Repetition first: halving the already lowered logit of token 2 would give 0.125.
  EXPECT_THAT(with({.repetition_penalty = 2, .presence_penalty = 0.5, .frequency_penalty = 0.25}),
              ElementsAre(1, -5, -0.25, 0.5));
}

TEST(Filters, Defaults_LeaveTheSoftmax) {
  EXPECT_THAT(remaining({}), Pointwise(IsAlmost(), kProbs));
}

// Squares and square roots of (0.64, 0.36), normalised.
TEST(Filters, Temperature_IsAPower) {
  EXPECT_THAT(remaining({.temperature = 0.5}, {0.64, 0.36}),
              Pointwise(IsAlmost(), Numbers{0.4096 / 0.5392, 0.1296 / 0.5392}));
  EXPECT_THAT(remaining({.temperature = 2}, {0.64, 0.36}), Pointwise(IsAlmost(), Numbers{4.0 / 7, 3.0 / 7}));
}

TEST(Filters, TopK_KeepsTheLargest_AndTheTiesOfTheLast) {
  EXPECT_THAT(remaining({.top_k = 2}), Pointwise(IsAlmost(), Numbers{0, 0.625, 0, 0.375}));
  EXPECT_THAT(remaining({.top_k = 1}), Pointwise(IsAlmost(), Numbers{0, 1, 0, 0}));
  EXPECT_THAT(remaining({.top_k = 9}), Pointwise(IsAlmost(), kProbs));
  EXPECT_THAT(remaining({.top_k = 2}, {0.2, 0.2, 0.2, 0.4}), Pointwise(IsAlmost(), Numbers{0.2, 0.2, 0.2, 0.4}));
}

// Largest first: 0.5, 0.8, 0.95, 1.
TEST(Filters, TopP_KeepsTheSmallestSetThatReachesP) {
  EXPECT_THAT(remaining({.top_p = 0.4}), Pointwise(IsAlmost(), Numbers{0, 1, 0, 0}));
  EXPECT_THAT(remaining({.top_p = 0.79}), Pointwise(IsAlmost(), Numbers{0, 0.625, 0, 0.375}));
  EXPECT_THAT(remaining({.top_p = 0.81}), Pointwise(IsAlmost(), Numbers{0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}));
  EXPECT_THAT(remaining({.top_p = 0.99}), Pointwise(IsAlmost(), kProbs));
}

TEST(Filters, MinP_IsAShareOfTheLargest) {
  EXPECT_THAT(remaining({.min_p = 0.2}), Pointwise(IsAlmost(), Numbers{0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}));
  EXPECT_THAT(remaining({.min_p = 0.5}), Pointwise(IsAlmost(), Numbers{0, 0.625, 0, 0.375}));
  EXPECT_THAT(remaining({.min_p = 1}), Pointwise(IsAlmost(), Numbers{0, 1, 0, 0}));
}

// Top-k leaves 0.625 and 0.375: the first alone reaches 0.6, which 0.5 would not.
TEST(Filters, TopP_LooksAtWhatTopKLeft) {
  EXPECT_THAT(remaining({.top_k = 2, .top_p = 0.6}), Pointwise(IsAlmost(), Numbers{0, 1, 0, 0}));
}

// Min-p leaves 0.5 / 0.95 = 0.526 at the top, which reaches 0.52 alone.
TEST(Filters, TopP_LooksAtWhatMinPLeft) {
  EXPECT_THAT(remaining({.top_p = 0.52}), Pointwise(IsAlmost(), Numbers{0, 0.625, 0, 0.375}));
  EXPECT_THAT(remaining({.top_p = 0.52, .min_p = 0.2}), Pointwise(IsAlmost(), Numbers{0, 1, 0, 0}));
}

// (0.81, 0.09, 0.1) at temperature 2 is (0.9, 0.3, 0.316) normalised: 0.09 is above 0.2 of the largest only after it.
TEST(Filters, Temperature_ComesBeforeMinP) {
  const auto probs = remaining({.temperature = 2, .min_p = 0.2}, {0.81, 0.09, 0.1});
  EXPECT_GT(probs[1], 0);
  EXPECT_EQ(remaining({.temperature = 1, .min_p = 0.2}, {0.81, 0.09, 0.1})[1], 0);
}

TEST(Greedy, TakesTheLargest_TheLowerIdOfATie) {
  EXPECT_EQ(sample({}, {}, Numbers{1, 3, 3, 2}, {}), 1);
  EXPECT_THAT(remaining_probabilities({}, Numbers{1, 3, 3, 2}), ElementsAre(0, 1, 0, 0));
}

TEST(Greedy, Penalties_ComeFirst) {
  const std::vector<int32_t> generated{1};
  EXPECT_EQ(sample({.presence_penalty = 1.5}, {{}, generated}, Numbers{1, 3, 0, 2}, {}), 3);
}

// Known-answer vectors of the Random123 distribution: the first two words of a block, low word first, cut to 53 bits.
TEST(Draw, IsPhiloxOfSeedRequestPositionAndDraw) {
  EXPECT_EQ(uniform(0, {}), static_cast<double>(0xe169c58d6627e8d5 >> 11) * 0x1p-53);
  EXPECT_EQ(uniform(0x299f31d0a4093822, {.request = 0x0370734413198a2e, .position = 0x243f6a88, .draw = 0x85a308d3}),
            static_cast<double>(0x94fdccebd16cfe09 >> 11) * 0x1p-53);
}

// The draw of seed 0 at the origin is 0xe169c58d / 2^32 = 0.8805: behind 0.65 and 0.7 of kProbs, in ascending id.
TEST(Draw, FallsIntoTheShareOfAToken_AscendingId) {
  EXPECT_EQ(sample({.temperature = 1}, {}, logits_of(kProbs), {}), 3);
  EXPECT_EQ(sample({.temperature = 1}, {}, logits_of({0.5, 0.3, 0.15, 0.05}), {}), 2);
  EXPECT_EQ(sample({.temperature = 1, .top_k = 2}, {}, logits_of({0.5, 0.3, 0.15, 0.05}), {}), 1);
}

// Chi-squared with three degrees of freedom: 16.3 is exceeded once in a thousand.
double chi_squared(const Sampling& sampling, const Numbers& expected) {
  constexpr int64_t kNumDraws = 20000;
  Numbers counts(expected.size());
  for (int64_t position = 0; position < kNumDraws; ++position) {
    counts[static_cast<size_t>(sample(sampling, {}, logits_of(kProbs), {.request = 3, .position = position}))] += 1;
  }
  double sum = 0;
  for (size_t id = 0; id < expected.size(); ++id) {
    const double mean = expected[id] * kNumDraws;
    sum += mean > 0 ? (counts[id] - mean) * (counts[id] - mean) / mean : 1e9 * counts[id];
  }
  return sum;
}

TEST(Draw, ManyPositions_FollowTheProbabilities) {
  EXPECT_LT(chi_squared({.temperature = 1, .seed = 1}, kProbs), 16.3);
  EXPECT_LT(chi_squared({.temperature = 1, .seed = 2}, kProbs), 16.3);
  EXPECT_LT(chi_squared({.temperature = 1, .top_p = 0.79, .seed = 1}, {0, 0.625, 0, 0.375}), 16.3);
  // The check itself: shifted by one percent of all draws it fails.
  EXPECT_GT(chi_squared({.temperature = 1, .seed = 1}, {0.17, 0.48, 0.05, 0.3}), 16.3);
}

TEST(Draw, OtherSeedsAndRequests_DrawOtherwise) {
  const auto draws = [](uint64_t seed, int64_t request) {
    Numbers all;
    for (int64_t position = 0; position < 8; ++position) {
      all.push_back(uniform(seed, {.request = request, .position = position}));
    }
    return all;
  };
  EXPECT_EQ(draws(1, 1), draws(1, 1));
  EXPECT_NE(draws(1, 1), draws(2, 1));
  EXPECT_NE(draws(1, 1), draws(1, 2));
  EXPECT_NE(draws(1, 1), draws(uint64_t{1} << 32, 1));
}

TEST(Logprobs, AreThoseOfTheLogitsAsTheyAre_LikeliestFirst) {
  const Numbers logits{std::log(0.15) + 3, std::log(0.5) + 3, std::log(0.05) + 3, std::log(0.3) + 3};
  const auto top = top_logprobs(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  const std::vector<std::pair<int32_t, double>> expected{{1, 0.5}, {3, 0.3}, {0, 0.15}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(top[i].first, expected[i].first);
    EXPECT_NEAR(top[i].second, std::log(expected[i].second), 1e-14);
  }
  EXPECT_NEAR(logprob(logits, 2), std::log(0.05), 1e-14);
  EXPECT_EQ(top_logprobs(logits, 9).size(), 4u);
  EXPECT_THROW((void)logprob(logits, 4), model::CheckError);
}

}  // namespace
}  // namespace reference
