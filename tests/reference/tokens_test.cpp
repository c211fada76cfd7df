#include "reference/tokens.hpp"

#include <gtest/gtest.h>

#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

// Rows of the cache: sequence 0 has 0..4, sequence 1 has 5, sequence 2 has 6..8.
TEST(TokenPlaces, RaggedSequences_StartWhereTheEarlierOnesEnd) {
  const auto places = token_places(
      {.sequences = {
           {.num_cached = 3, .num_new = 2}, {.num_cached = 0, .num_new = 1}, {.num_cached = 1, .num_new = 2}}});
  const std::vector<std::pair<int64_t, int64_t>> expected{{3, 0}, {4, 0}, {0, 5}, {1, 6}, {2, 6}};
  ASSERT_EQ(places.size(), expected.size());
  for (size_t t = 0; t < places.size(); ++t) {
    EXPECT_EQ(std::pair(places[t].position, places[t].first_key_row), expected[t]) << t;
    EXPECT_EQ(places[t].num_visible(), expected[t].first + 1) << t;
  }
}

// A sequence may sit out a step with its rows still in the cache.
TEST(TokenPlaces, SequenceWithoutNewTokens_StillTakesRows) {
  const auto places = token_places({.sequences = {{.num_cached = 4, .num_new = 0}, {.num_cached = 0, .num_new = 1}}});
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].first_key_row, 4);
}

TEST(TokensOfExpert, AnySlot_Counts) {
  const auto topk_ids = i32({4, 2}, {5, 1, 0, 2, 1, 3, 4, 0});
  EXPECT_EQ(tokens_of_expert(topk_ids, 1), (Reused<int64_t>{0, 2}));
  EXPECT_EQ(tokens_of_expert(topk_ids, 0), (Reused<int64_t>{1, 3}));
  EXPECT_TRUE(tokens_of_expert(topk_ids, 6).empty());
}

}  // namespace
}  // namespace reference
