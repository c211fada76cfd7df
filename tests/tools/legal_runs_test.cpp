// Runs that another correct engine could have produced pass: other orders of sums, other published rules, threads, chunks, forms
// of attention. A false alarm is worth as little as a missed fault.
#include "tools/legal_runs.hpp"
#include "tests/paths.hpp"

#include <gtest/gtest.h>

#include <map>

#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

constexpr uint64_t kRunsPerTest = 40;

void expect_no_alarm(Trials& trials, const LegalPlace& place, uint64_t seed) {
  const LegalRun run = draw_legal_run(seed, LegalFreedom::kOrdersAndRules);
  const auto trial = run_legally(trials, place, run);
  EXPECT_EQ(trial.verdict.outcome, golden::Verdict::Outcome::kPass) << place.fixture << ", " << run.description << "\n"
                                                                    << complaints(trial.verdict);
}

// Seeds [first, first + count) over the generated fixtures in turn.
void expect_no_alarms(uint64_t first, uint64_t count) {
  Trials trials(2);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    expect_no_alarm(trials, legal_places()[seed % legal_places().size()], seed);
  }
}

class LegalRuns : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, LegalRuns, testing::Range(uint64_t{0}, uint64_t{DSV3_NUM_LEGAL_RUNS} / kRunsPerTest));

TEST_P(LegalRuns, NoneIsCalledAFault) {
  expect_no_alarms(GetParam() * kRunsPerTest, kRunsPerTest);
}

TEST(LegalRunsOnMini, NoneIsCalledAFault) {
  Trials trials(2);
  const std::string checkpoint = (source_dir() / "golden/data/mini/checkpoint").string();
  const auto all = golden::read_cases(source_dir() / "golden/data/mini/prompts.json");
  for (uint64_t seed = 0; seed < 6; ++seed) {
    expect_no_alarm(trials, {checkpoint, golden::select_cases(all, {"p2", "d0"})}, seed);
  }
}

// The variations do reach the bits, and every kind of them is drawn, or passing would say nothing.
TEST(LegalRunsVary, ManyOpsComeOutWithOtherBits_AndByOtherRules) {
  Trials trials(2);
  std::map<golden::OpStatus, int64_t> counts;
  for (const uint64_t seed : {3, 7, 11}) {
    for (const auto& op :
         run_legally(trials, legal_places()[1], draw_legal_run(seed, LegalFreedom::kOrdersAndRules)).verdict.ops) {
      ++counts[op.status];
    }
  }
  EXPECT_GT(counts[golden::OpStatus::kOrder], 40);
  EXPECT_GT(counts[golden::OpStatus::kVariant], 40);
  EXPECT_GT(counts[golden::OpStatus::kSame], 100);
}

}  // namespace
}  // namespace tools
