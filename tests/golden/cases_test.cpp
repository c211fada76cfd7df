#include "golden/cases.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"
#include "tests/temp_dir.hpp"

namespace {

using golden::Case;

std::vector<Case> read_text(const std::string& json) {
  const TempDir folder;
  write_bytes(folder / "prompts.json", json);
  return golden::read_cases(folder / "prompts.json");
}

// The message of the InputError that reading this text throws; empty when it throws none.
std::string refusal(const std::string& json) {
  try {
    read_text(json);
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "";
}

const char* const kFull = R"({
  "prompts": {"p7": [5, 6, 7], "p2": [0, 1]},
  "batch2": {"b2": [[1, 2], [3, 4]]},
  "decode": {"prefill": "p7", "feed": [8, 9]},
  "mtp": {"p2": [4]},
  "p7_rows": [0, 2]
})";

TEST(Cases, ReadsEverySectionInTheOrderOfTheFile) {
  const std::vector<Case> expected{
      {.name = "p7", .sequences = {{5, 6, 7}}, .rows = {0, 2}},
      {.name = "p2", .sequences = {{0, 1}}, .mtp_ids = {4}},
      {.name = "b2", .sequences = {{1, 2}, {3, 4}}},
      {.name = "d0", .after = "p7", .sequences = {{8}}},
      {.name = "d1", .after = "d0", .sequences = {{9}}},
  };
  EXPECT_EQ(read_text(kFull), expected);
}

TEST(Cases, SectionsMayBeAbsent) {
  EXPECT_EQ(read_text(R"({"prompts": {"a": [3]}})"), (std::vector<Case>{{.name = "a", .sequences = {{3}}}}));
  EXPECT_EQ(read_text(R"({"batch2": {"b": [[1, 2], [3]]}})"),
            (std::vector<Case>{{.name = "b", .sequences = {{1, 2}, {3}}}}));
}

TEST(Cases, PromptCaseIsNamedByItsLength) {
  EXPECT_EQ(golden::prompt_case({4, 5, 6}), (Case{.name = "p3", .sequences = {{4, 5, 6}}}));
  EXPECT_THROW(golden::prompt_case({}), model::InputError);
}

TEST(Cases, NumTokensCountsAllSequences) {
  EXPECT_EQ((Case{.name = "b", .sequences = {{1, 2}, {3}}}).num_tokens(), 3);
}

TEST(Cases, SelectingADecodeStepBringsWhatItFollows) {
  const auto all = read_text(kFull);
  const auto selected = golden::select_cases(all, {"d1"});
  ASSERT_EQ(selected.size(), 3U);
  EXPECT_EQ(selected[0].name, "p7");
  EXPECT_EQ(selected[1].name, "d0");
  EXPECT_EQ(selected[2].name, "d1");
}

TEST(Cases, SelectingKeepsTheOrderOfTheListAndEachCaseOnce) {
  const auto selected = golden::select_cases(read_text(kFull), {"b2", "p7", "p7"});
  ASSERT_EQ(selected.size(), 2U);
  EXPECT_EQ(selected[0].name, "p7");
  EXPECT_EQ(selected[1].name, "b2");
}

TEST(Cases, SelectingAnUnknownNameListsTheKnownOnes) {
  try {
    golden::select_cases(read_text(kFull), {"p9"});
    FAIL() << "accepted";
  } catch (const model::InputError& error) {
    EXPECT_STREQ(error.what(), "case: no case is called p9, known: p7, p2, b2, d0, d1");
  }
}

TEST(Cases, SequenceStepsCountTheCachedPositionsOfTheWholeChain) {
  const auto all = read_text(kFull);
  const auto steps = golden::sequence_steps(all, all[4]);  // d1: after p7 (3 tokens) and d0 (1)
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].num_cached, 4);
  EXPECT_EQ(steps[0].num_new, 1);
  const auto batch = golden::sequence_steps(all, all[2]);
  ASSERT_EQ(batch.size(), 2U);
  EXPECT_EQ(batch[1].num_cached, 0);
  EXPECT_EQ(batch[1].num_new, 2);
}

TEST(Cases, AChainInACircleIsRefused) {
  const std::vector<Case> circle{{.name = "a", .after = "b", .sequences = {{1}}},
                                 {.name = "b", .after = "a", .sequences = {{1}}}};
  EXPECT_THROW(golden::sequence_steps(circle, circle[0]), model::InputError);
  EXPECT_EQ(golden::select_cases(circle, {"a"}).size(), 2U);
}

TEST(Cases, StoredRowsCutOnlyFinalNormAndLogits) {
  const Case which{.name = "p3", .sequences = {{1, 2, 3}}, .rows = {0, 2}};
  const auto tensor = model::make_tensor(model::DType::kF32, {3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6});
  for (const char* op : {"final_norm", "logits"}) {
    const auto cut = golden::stored_rows(which, op, tensor);
    EXPECT_EQ(cut.shape, (model::Shape{2, 2}));
    EXPECT_EQ(model::to_double(cut), (std::vector<double>{1, 2, 5, 6}));
  }
  EXPECT_EQ(golden::stored_rows(which, "mtp.0.logits", tensor).num_rows(), 3);
  EXPECT_EQ(golden::stored_rows({.name = "p3", .sequences = {{1, 2, 3}}}, "logits", tensor).num_rows(), 3);
}

TEST(Cases, RefusalsNameFileKeyAndExpectation) {
  const std::string message = refusal(R"({"prompts": {"p1": [1, -2]}})");
  EXPECT_NE(message.find("prompts.json: prompts: p1: expected integers from 0 to 2147483647, element 1 is not"),
            std::string::npos)
      << message;
}

TEST(Cases, AMissingFileIsRefused) {
  EXPECT_THROW(golden::read_cases("no/such/file.json"), model::InputError);
}

class HostileCases : public testing::TestWithParam<const char*> {};

TEST_P(HostileCases, AreRefusedInOneLine) {
  const std::string message = refusal(GetParam());
  EXPECT_NE(message.find("prompts.json"), std::string::npos)
      << "accepted, or refused without naming the file: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All,
                         HostileCases,
                         testing::Values("",
                                         "not json",
                                         "[]",
                                         "{}",
                                         "{\"prompts\": {}}",
                                         R"({"prompts": {"p1": [1]})",
                                         R"({"prompts": [1]})",
                                         R"({"prompts": {"p1": 1}})",
                                         R"({"prompts": {"p1": []}})",
                                         R"({"prompts": {"p1": [1.0]}})",
                                         R"({"prompts": {"p1": [true]}})",
                                         R"({"prompts": {"p1": ["1"]}})",
                                         R"({"prompts": {"p1": [2147483648]}})",
                                         R"({"prompts": {"p1": [18446744073709551615]}})",
                                         R"({"prompts": {"p1": [1e400]}})",
                                         R"({"prompts": {"p1": [[1]]}})",
                                         R"({"prompts": {"p/1": [1]}})",
                                         R"({"prompts": {"": [1]}})",
                                         R"({"prompts": {"p\n1": [1]}})",
                                         R"({"prompts": {"p\n1": []}})",
                                         R"({"prompts": {"p1": [1], "p1": [2]}})",
                                         R"({"prompts": {"b": [1]}, "batch2": {"b": [[1]]}})",
                                         R"({"batch2": {"b": [1, 2]}})",
                                         R"({"batch2": {"b": []}})",
                                         R"({"batch2": {"b": [[1], []]}})",
                                         R"({"prompts": {"p1": [1]}, "prompt\ns": {"p2": [1]}})",
                                         R"({"prompts": {"p1": [1]}, "p2_rows": [0]})",
                                         R"({"prompts": {"p1": [1]}, "p1_rows": [1]})",
                                         R"({"prompts": {"p1": [1]}, "p1_rows": []})",
                                         R"({"prompts": {"p1": [1, 2]}, "p1_rows": [1, 1]})",
                                         R"({"prompts": {"p1": [1]}, "mtp": {"p2": [1]}})",
                                         R"({"batch2": {"b": [[1], [2]]}, "mtp": {"b": [1]}})",
                                         R"({"prompts": {"p1": [1]}, "decode": {"prefill": "p2", "feed": [1]}})",
                                         R"({"prompts": {"p1": [1]}, "decode": {"prefill": "p1", "feed": []}})",
                                         R"({"prompts": {"p1": [1]}, "decode": {"prefill": "p1"}})",
                                         R"({"prompts": {"p1": [1]}, "decode": {"prefill": 1, "feed": [1]}})",
                                         R"({"prompts": {"d0": [1]}, "decode": {"prefill": "d0", "feed": [1]}})",
                                         R"({"batch2": {"b": [[1], [2]]}, "decode": {"prefill": "b", "feed": [1]}})"));

TEST(HostileCasesDeep, DeepNestingIsRefusedWithoutACrash) {
  EXPECT_NE(refusal(std::string(1'000'000, '[')), "");
  EXPECT_NE(refusal(R"({"prompts": {"p1": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}}"), "");
}

}  // namespace
