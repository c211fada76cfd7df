// Runs that another correct engine could have produced pass: other orders of sums, other published rules, threads, chunks, forms
// of attention. A false alarm is worth as little as a missed fault.
#include "tools/legal_runs.hpp"

#include <gtest/gtest.h>

#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

constexpr uint64_t kRunsPerTest = 40;

void expect_no_alarm(Trials& trials, const LegalPlace& place, uint64_t seed) {
  const LegalRun run = draw_legal_run(seed);
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
  const std::string checkpoint = std::string(DSV3_SOURCE_DIR) + "/golden/data/mini/checkpoint";
  const auto all = golden::read_cases(std::filesystem::path(DSV3_SOURCE_DIR) / "golden/data/mini/prompts.json");
  for (uint64_t seed = 0; seed < 6; ++seed) {
    expect_no_alarm(trials, {checkpoint, golden::select_cases(all, {"p2", "d0"})}, seed);
  }
}

// The variations do reach the bits, or passing would say nothing.
TEST(LegalRunsVary, MostOpsComeOutWithOtherBits) {
  Trials trials(2);
  const LegalPlace place = legal_places()[1];
  const auto trial = run_legally(trials, place, draw_legal_run(3));
  int64_t num_same = 0;
  for (const auto& op : trial.verdict.ops) {
    num_same += op.status == golden::OpStatus::kSame ? 1 : 0;
  }
  EXPECT_LT(num_same, static_cast<int64_t>(trial.verdict.ops.size()) / 2);
}

}  // namespace
}  // namespace tools
