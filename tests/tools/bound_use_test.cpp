// No bound is loose, and none is too narrow: legal runs use between a fiftieth and all of it, in every kind of op.
#include "tools/legal/bound_use.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tools::legal {
namespace {

// Kinds whose rule leaves no freedom at all: copies, and an FP32 sum that is stored as it is.
const std::vector<std::string> kExact{"cache_latent", "embed", "layer_output"};

TEST(BoundUse, OfEveryKindOfOp_LiesBetweenAFiftiethAndOne) {
  Trials trials(1);
  const auto uses = bound_uses(trials, 2);
  EXPECT_EQ(uses.size(), 24U);  // every kind and form but choices; lse is only computed when it is asked for
  for (const auto& [kind, use] : uses) {
    if (std::ranges::find(kExact, kind) != kExact.end()) {
      EXPECT_EQ(use.num_elements, 0) << kind;
      continue;
    }
    EXPECT_GT(use.num_elements, 0) << kind;
    EXPECT_GE(use.largest, 1.0 / 50) << kind;
    EXPECT_LE(use.largest, 1.0) << kind;
  }
}

}  // namespace
}  // namespace tools::legal
