// Every planted fault is seen on the fixture that it names, at the op where it starts and nowhere else.
#include "tools/faults.hpp"
#include "tests/paths.hpp"

#include <fnmatch.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/temp_dir.hpp"
#include "tools/trials.hpp"

namespace tools {
namespace {

// Checkpoints and right runs are opened once for all faults.
Trials& trials() {
  static Trials shared(2);
  return shared;
}

void expect_seen_where_it_starts(const Fault& fault) {
  const auto trial = trials().run(fault);
  EXPECT_EQ(trial.verdict.outcome, golden::Verdict::Outcome::kFail) << fault.id << ": " << fault.description;
  // Forced comparison: only the op that is wrong diverges, nothing downstream of it.
  for (const auto& op : trial.verdict.ops) {
    if (op.status == golden::OpStatus::kDiverged) {
      EXPECT_EQ(fnmatch(fault.starts_at.c_str(), op.op.c_str(), 0), 0) << fault.id << " blamed on " << op.op;
    }
  }
}

// In a few shares, so that they run side by side and each opens the fixtures only once.
constexpr size_t kNumShares = 8;
class ShareOfFaults : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Faults, ShareOfFaults, testing::Range(size_t{0}, kNumShares));

TEST_P(ShareOfFaults, EachIsSeenWhereItStarts_AndNothingElseIsBlamed) {
  for (size_t i = GetParam(); i < all_faults().size(); i += kNumShares) {
    expect_seen_where_it_starts(all_faults()[i]);
  }
}

TEST(Faults, IdsAreUnique_AndThereAreThirtyOfOurOwn) {
  std::set<std::string> ids;
  int num_own = 0;
  for (const Fault& fault : all_faults()) {
    EXPECT_TRUE(ids.insert(fault.id).second) << fault.id;
    num_own += fault.id.starts_with("k-") ? 1 : 0;
  }
  EXPECT_GE(num_own, 30);
}

TEST(Faults, EachIsListedInTheDocs) {
  const std::string text = read_bytes((source_dir() / "docs/faults.md").string());
  for (const Fault& fault : all_faults()) {
    EXPECT_NE(text.find("| `" + fault.id + "` | " + fault.description + " |"), std::string::npos) << fault.id;
  }
}

TEST(Faults, TheirCases_AreReadBackAsTheyAre) {
  const TempDir folder;
  for (const Fault& fault : all_faults()) {
    const auto path = folder / "cases.json";
    write_bytes(path, cases_text(fault.cases));
    EXPECT_EQ(golden::read_cases(path), fault.cases) << fault.id;
  }
}

TEST(Faults, AnUnknownId_IsRefused_WithTheKnownOnes) {
  try {
    find_fault("bb-99");
    FAIL();
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("bb-02"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tools
