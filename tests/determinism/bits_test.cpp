// Every mode of fixed bits, at every level of instructions of this machine and with 1, 2 and 5 threads: the same hash of every op.
// tools/check --determinism does it for every compiler and optimisation, and for all small models.
#include "tests/determinism/bits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace determinism {
namespace {

const model::WeightSource& small_model(const std::string& name) {
  static const auto models = small_models();
  return *std::ranges::find(models, name, &SmallModel::name)->weights;
}

constexpr Cell kPlainest{.level = reference::simd::Level::kBaseline, .num_threads = 1};

class EveryMode : public ::testing::TestWithParam<Mode> {};

TEST_P(EveryMode, HasTheSameBitsAtEveryLevelWithAnyThreads) {
  const auto expected = bits_of(small_model("mini"), GetParam().rules, kPlainest);
  EXPECT_GT(expected.size(), 40U);
  for (const auto level : reference::simd::supported_levels()) {
    for (const int num_threads : {1, 2, 5}) {
      const auto got = bits_of(small_model("mini"), GetParam().rules, {.level = level, .num_threads = num_threads});
      for (const auto& [op, hash] : expected) {
        EXPECT_EQ(got.at(op), hash) << op << ", " << reference::simd::level_name(level) << ", " << num_threads
                                    << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes,
                         EveryMode,
                         ::testing::ValuesIn(modes_of(small_model("mini").config())),
                         [](const auto& instance) {
                           std::string name = instance.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The hashes see what they should.
TEST(BitsOf, AnotherTokenChangesTheLogits) {
  const auto& mini = small_model("mini");
  const auto rules = modes_of(mini.config()).front().rules;
  EXPECT_NE(bits_of(mini, rules, kPlainest).at("logits"), bits_of(mini, rules, kPlainest, 4).at("logits"));
}

// Modes that round coarsely enough to show in nine tokens. (Steps that keep 25 bits are as good as an FP32 sum here.)
TEST(BitsOf, ModesThatRoundDifferentlyHaveOtherLogits) {
  const auto& mini = small_model("mini");
  std::map<uint64_t, std::string> mode_of;
  for (const Mode& mode : modes_of(mini.config())) {
    if (std::ranges::count(std::array<std::string_view, 6>{"exact", "hf", "v32", "v3-demo", "hopper", "ada"},
                           mode.name) > 0) {
      const auto [place, is_new] = mode_of.emplace(bits_of(mini, mode.rules, kPlainest).at("logits"), mode.name);
      EXPECT_TRUE(is_new) << mode.name << " and " << place->second;
    }
  }
  EXPECT_EQ(mode_of.size(), 6U);
}

}  // namespace
}  // namespace determinism
