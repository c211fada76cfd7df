// Modes that change how linears are summed: recorded, told apart, and named by the verifier.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "golden/manifest_json.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;

const Fixture& mini() {
  static const Fixture fixture(std::filesystem::path(DSV3_SOURCE_DIR) / "golden/data/mini");
  return fixture;
}

const golden::GoldenFile& recorded(const std::string& mode) {
  static std::map<std::string, golden::GoldenFile> files;
  if (!files.contains(mode)) {
    files[mode] = mini().record({.mode = mode}, {"p7"});
  }
  return files.at(mode);
}

golden::Verdict judged(const golden::GoldenFile& golden, const golden::GoldenFile& dump) {
  return mini().compare(golden, {.tensors = dump.tensors, .unused = {}});
}

int64_t count(const golden::Verdict& verdict, OpStatus status) {
  return std::ranges::count(verdict.ops, status, &golden::OpResult::status);
}

// How many FP8 linears of a verdict have one of these names.
int64_t count_named(const golden::Verdict& verdict, const std::vector<std::string>& names) {
  return std::ranges::count_if(verdict.ops, [&](const auto& op) { return std::ranges::count(names, op.variant) > 0; });
}

TEST(Modes, EachRecipe_IsTheSameAsItself) {
  for (const char* mode : {"hopper", "hopper-mma", "hopper-triton", "ada", "blackwell", "fast"}) {
    const auto verdict = judged(recorded(mode), recorded(mode));
    EXPECT_EQ(count(verdict, OpStatus::kSame), static_cast<int64_t>(verdict.ops.size())) << mode;
  }
}

TEST(Modes, RecipesAgainstThePublishedGolden_PassUnderTheirNames) {
  for (const char* mode : {"hopper", "hopper-mma", "ada", "blackwell"}) {
    const auto verdict = judged(recorded("published"), recorded(mode));
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << mode << "\n" << complaints(verdict);
    EXPECT_GT(count_named(verdict, {mode}), 0) << mode;
  }
}

TEST(Modes, HopperAgainstStrictPublished_Fails) {
  const auto verdict = mini().compare(
      recorded("published"), {.tensors = recorded("hopper").tensors, .unused = {}}, {.cases = {}, .strict = true});
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kFail);
}

TEST(Modes, OtherArithmeticAgainstAHopperGolden_IsNamed) {
  for (const auto& [mode, names] : {std::pair{"ada", std::vector<std::string>{"ada"}},
                                    std::pair{"published", std::vector<std::string>{"sum-fp32"}}}) {
    const auto verdict = judged(recorded("hopper"), recorded(mode));
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
    EXPECT_GT(count_named(verdict, names), 0) << mode;
  }
}

TEST(Modes, Fast_IsAnotherOrderAndNothingElse) {
  const auto verdict = judged(recorded("published"), recorded("fast"));
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
  EXPECT_EQ(count(verdict, OpStatus::kSame) + count(verdict, OpStatus::kOrder),
            static_cast<int64_t>(verdict.ops.size()));
  EXPECT_GT(count(verdict, OpStatus::kOrder), 0);
}

// One bit less below the largest exponent than Hopper keeps: no published unit does that.
constexpr const char* kStated =
    R"({"name": "stated", "promotion": {"every": 128, "form": "fma_scales_first"}, "units": [
  {"inputs": ["e4m3fn"], "products": 32, "align_bits": 12, "result_bits": 13},
  {"inputs": ["bf16"], "products": 16, "align_bits": 24, "result_bits": 23}]})";

TEST(Modes, StatedArithmetic_IsARuleOfItsOwn_AndDivergesFromOthers) {
  const TempDir directory;
  const auto file = directory.path() / "stated.json";
  std::ofstream(file) << kStated;
  const auto golden = mini().record({.mode = "arithmetic:" + file.string()}, {"p7"});
  std::filesystem::remove(file);  // the golden file holds its text
  const auto read_back = golden::parse_manifest(golden::manifest_text(golden.manifest), "test");
  EXPECT_EQ(read_back.arithmetic, kStated);
  const auto own = judged(golden, golden);
  EXPECT_EQ(count(own, OpStatus::kSame), static_cast<int64_t>(own.ops.size()));
  EXPECT_EQ(judged(recorded("published"), golden).outcome, golden::Verdict::Outcome::kFail);
  EXPECT_EQ(judged(recorded("hopper"), golden).outcome, golden::Verdict::Outcome::kFail);
}

TEST(Modes, WithoutAUnitForTheOperands_AreRefused) {
  const auto& config = mini().checkpoint().config();
  EXPECT_THROW((void)resolved({.mode = "ampere"}, config), model::InputError);
  EXPECT_NO_THROW((void)resolved({.mode = "ampere", .gemm = "bf16"}, config));
  EXPECT_THROW((void)resolved({.mode = "volta"}, config), model::InputError);
  EXPECT_THROW((void)resolved({.mode = "arithmetic:/nowhere.json"}, config), model::InputError);
}

TEST(Modes, OfOlderManifests_AreRead) {
  auto text = golden::manifest_text(recorded("published").manifest);
  for (const std::string field : {"\"arithmetic\":\"\",", "\"reduced\":{},"}) {
    ASSERT_NE(text.find(field), std::string::npos) << field;
    text.erase(text.find(field), field.size());
  }
  EXPECT_EQ(golden::parse_manifest(text, "test").mode, "published");
}

}  // namespace
}  // namespace tools
