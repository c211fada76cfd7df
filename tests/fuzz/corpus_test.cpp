// The corpus of the fuzzers, replayed: what they start from, and what they found once. Files called whole* are taken, all others
// are refused in one line.
#include "tests/fuzz/targets.hpp"

#include <gtest/gtest.h>

#include "tests/paths.hpp"
#include "tests/temp_dir.hpp"

namespace fuzz {
namespace {

class Corpus : public ::testing::TestWithParam<Target> {};

TEST_P(Corpus, IsTakenOrRefusedInOneLine) {
  int num_taken = 0;
  int num_refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests/fuzz/corpus" / GetParam().name)) {
    const std::string name = entry.path().filename().string();
    const bool is_taken = takes(GetParam(), read_bytes(entry.path()));
    EXPECT_EQ(is_taken, name.starts_with("whole")) << name;
    ++(is_taken ? num_taken : num_refused);
  }
  EXPECT_GT(num_taken, 0);
  EXPECT_GT(num_refused, 0);
}

// What every reader can be handed by mistake.
TEST_P(Corpus, NothingAndNoiseAreRefused) {
  for (const auto& bytes : {std::string(), std::string(1, '\0'), std::string(64, '\xFF'), std::string(4096, '[')}) {
    EXPECT_FALSE(takes(GetParam(), bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Corpus, ::testing::ValuesIn(targets()), [](const auto& instance) {
  return std::string(instance.param.name);
});

}  // namespace
}  // namespace fuzz
