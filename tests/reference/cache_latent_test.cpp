#include "reference/ops/cache_latent.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp cache_op(std::vector<model::SequenceStep> sequences) {
  HandMadeOp op;
  op.op.kind = model::OpKind::kCacheLatent;
  op.workload.sequences = std::move(sequences);
  return op;
}

TEST(CacheLatent, FirstStep_JoinsLatentAndKey) {
  const auto cache = cache_op({{0, 2}}).run({bf16({2, 2}, {1, 2, 4, 5}), bf16({2, 1}, {3, 6}), {}});
  EXPECT_EQ(cache.shape, (model::Shape{2, 3}));
  EXPECT_EQ(numbers(cache), (Numbers{1, 2, 3, 4, 5, 6}));
}

// Sequence 0 has one old row, sequence 1 none, sequence 2 two: new rows go behind the old ones of their own sequence.
TEST(CacheLatent, RaggedSequences_KeepTheirRowsTogether) {
  const auto before = bf16({3, 2}, {10, 11, 20, 21, 30, 31});
  const auto cache =
      cache_op({{1, 1}, {0, 1}, {2, 1}}).run({bf16({3, 1}, {1, 2, 3}), bf16({3, 1}, {-1, -2, -3}), before});
  EXPECT_EQ(numbers(cache), (Numbers{10, 11, 1, -1, 2, -2, 20, 21, 30, 31, 3, -3}));
}

TEST(CacheLatent, ExactMode_KeepsFp64) {
  auto op = cache_op({{0, 1}});
  op.rules = exact_rules();
  EXPECT_EQ(numbers(op.run({f64({1, 1}, {1 + 0x1p-50}), f64({1, 1}, {2}), {}})), (Numbers{1 + 0x1p-50, 2}));
}

TEST(CacheLatent, MissingRows_Throw) {
  EXPECT_THROW((void)cache_op({{1, 1}}).run({bf16({1, 1}, {1}), bf16({1, 1}, {2}), {}}), model::CheckError);
}

TEST(CacheLatent, CacheOfAnotherFormat_Throws) {
  EXPECT_THROW((void)cache_op({{1, 1}}).run({bf16({1, 1}, {1}), bf16({1, 1}, {2}), f64({1, 2}, {1, 2})}),
               model::CheckError);
}

}  // namespace
}  // namespace reference
