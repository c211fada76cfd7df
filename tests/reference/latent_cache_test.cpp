#include "reference/latent_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

// Appends a row of two F32 numbers.
void append(LatentCache& cache, int64_t layer, int64_t sequence, float first, float second) {
  const auto row = cache.append(layer, sequence, model::DType::kF32, 2);
  const std::array<float, 2> numbers{first, second};
  std::ranges::copy(std::as_bytes(std::span(numbers)), row.begin());
}

Numbers rows_of(const LatentCache& cache, int64_t layer, std::vector<int64_t> sequences) {
  const auto rows = cache.gather(layer, sequences);
  return rows.bytes.empty() ? Numbers{} : numbers(rows);
}

TEST(LatentCache, RowsOfEachLayerAndSequence_AreApart) {
  LatentCache cache(2);
  append(cache, 0, 0, 1, 2);
  append(cache, 0, 1, 3, 4);
  append(cache, 1, 1, 5, 6);
  append(cache, 0, 1, 7, 8);
  EXPECT_EQ(rows_of(cache, 0, {0}), (Numbers{1, 2}));
  EXPECT_EQ(rows_of(cache, 0, {1}), (Numbers{3, 4, 7, 8}));
  EXPECT_EQ(rows_of(cache, 0, {1, 0}), (Numbers{3, 4, 7, 8, 1, 2}));
  EXPECT_EQ(rows_of(cache, 1, {0, 1}), (Numbers{5, 6}));
  EXPECT_EQ(cache.num_rows(1, 0), 0);
  EXPECT_EQ(cache.num_rows(7, 7), 0);
}

// Two sequences that grow in turn have pages that are not adjacent; the rows stay in order.
TEST(LatentCache, SequencesThatGrowInTurn_KeepTheirOrder) {
  for (const int64_t page_rows : {1, 2, 3, 64}) {
    LatentCache cache(page_rows);
    for (float i = 0; i < 5; ++i) {
      append(cache, 0, 0, i, -i);
      append(cache, 0, 1, 10 + i, 0);
    }
    EXPECT_EQ(rows_of(cache, 0, {0}), (Numbers{0, 0, 1, -1, 2, -2, 3, -3, 4, -4}));
    EXPECT_EQ(rows_of(cache, 0, {1}), (Numbers{10, 0, 11, 0, 12, 0, 13, 0, 14, 0}));
    EXPECT_EQ(cache.runs(0, 0).size(), static_cast<size_t>((5 + page_rows - 1) / page_rows));
  }
}

TEST(LatentCache, Append_LeavesTheRowsWhereTheyAre) {
  LatentCache cache(4);
  append(cache, 0, 0, 1, 2);
  const auto* before = cache.runs(0, 0)[0].data();
  for (float i = 0; i < 9; ++i) {
    append(cache, 0, 0, i, i);
    append(cache, 0, 1, i, i);
  }
  EXPECT_EQ(cache.runs(0, 0)[0].data(), before);
}

TEST(LatentCache, Truncate_DropsTheLastRowsOfTheLayersFromTheFirstNamed) {
  LatentCache cache(2);
  for (int64_t layer : {0, 1}) {
    for (float i = 0; i < 5; ++i) {
      append(cache, layer, 0, i, i);
      append(cache, layer, 1, i, i);
    }
  }
  cache.truncate(0, 3, 1);
  EXPECT_EQ(cache.num_rows(0, 0), 5);
  EXPECT_EQ(cache.num_rows(1, 0), 3);
  EXPECT_EQ(cache.num_rows(1, 1), 5);
  cache.truncate(0, 4);
  EXPECT_EQ(cache.num_rows(0, 0), 4);
  EXPECT_EQ(cache.num_rows(1, 0), 3);
  append(cache, 1, 0, 9, 9);
  EXPECT_EQ(rows_of(cache, 1, {0}), (Numbers{0, 0, 1, 1, 2, 2, 9, 9}));
}

// Ten pages are enough for any number of sequences that live one after another.
TEST(LatentCache, PagesOfARemovedSequence_AreUsedAgain) {
  LatentCache cache(2);
  for (int64_t sequence = 0; sequence < 8; ++sequence) {
    for (float i = 0; i < 20; ++i) {
      append(cache, 0, sequence % 3, i, static_cast<float>(sequence));
    }
    EXPECT_EQ(cache.num_pages(), 10);
    cache.remove(sequence % 3);
    EXPECT_EQ(cache.num_rows(0, sequence % 3), 0);
  }
}

// A page that was used before must not show what was there.
TEST(LatentCache, RowsThatNobodyWrote_AreNaN) {
  LatentCache cache(2);
  append(cache, 0, 0, 1, 2);
  cache.remove(0);
  (void)cache.append(0, 1, model::DType::kF32, 2);
  for (const double number : rows_of(cache, 0, {1})) {
    EXPECT_TRUE(std::isnan(number));
  }
}

TEST(LatentCache, Assign_ReplacesAllRows) {
  LatentCache cache(2);
  append(cache, 0, 0, 1, 2);
  append(cache, 0, 1, 3, 4);
  cache.assign(0, 0, f32({3, 2}, {5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(rows_of(cache, 0, {0, 1}), (Numbers{5, 6, 7, 8, 9, 10, 3, 4}));
}

TEST(LatentCache, ACopy_IsIndependent) {
  LatentCache cache(2);
  append(cache, 0, 0, 1, 2);
  LatentCache copy = cache;
  append(copy, 0, 0, 3, 4);
  EXPECT_EQ(rows_of(cache, 0, {0}), (Numbers{1, 2}));
  EXPECT_EQ(rows_of(copy, 0, {0}), (Numbers{1, 2, 3, 4}));
}

TEST(LatentCache, RowsOfAnotherFormat_Throw) {
  LatentCache cache(2);
  append(cache, 0, 0, 1, 2);
  EXPECT_THROW((void)cache.append(0, 0, model::DType::kBF16, 2), model::CheckError);
  EXPECT_THROW((void)cache.append(0, 1, model::DType::kF32, 3), model::CheckError);
}

}  // namespace
}  // namespace reference
