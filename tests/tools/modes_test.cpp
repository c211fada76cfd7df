// Modes that change how linears are summed: recorded, told apart, and named by the verifier.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "golden/manifest_json.hpp"
#include "tests/temp_dir.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;

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

// Steps that keep 13 bits give bits that no FP32 sum gives.
TEST(Modes, RecipesAgainstThePublishedGolden_PassUnderTheirNames) {
  for (const char* mode : {"hopper", "ada"}) {
    const auto verdict = judged(recorded("published"), recorded(mode));
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << mode << "\n" << complaints(verdict);
    EXPECT_GT(count_named(verdict, {mode}), 30) << mode;
  }
}

// Steps that keep 25 bits are as exact as an FP32 sum: here they pass as another order of one.
TEST(Modes, FineStepsAgainstThePublishedGolden_PassAsAnotherOrder) {
  for (const char* mode : {"hopper-mma", "blackwell"}) {
    const auto verdict = judged(recorded("published"), recorded(mode));
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << mode << "\n" << complaints(verdict);
    EXPECT_GT(count(verdict, OpStatus::kOrder), 0) << mode;
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

// 129 tokens: with fewer than a vector of the machine holds, the order is the written one, and another order moves one BF16 number in
// some tens of thousands.
TEST(Modes, Fast_IsAnotherOrderAndNothingElse) {
  const auto verdict =
      judged(mini().record({.mode = "published"}, {"p129"}), mini().record({.mode = "fast"}, {"p129"}));
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
  RecordJob job;
  job.ops = {"layer.1.attn*"};
  const auto golden = mini().record({.mode = "arithmetic:" + file.string()}, {"p7"}, job);
  std::filesystem::remove(file);  // the golden file holds its text
  const auto read_back = golden::parse_manifest(golden::manifest_text(golden.manifest), "test");
  EXPECT_EQ(read_back.arithmetic, kStated);
  const auto own = judged(golden, golden);
  EXPECT_GT(count(own, OpStatus::kSame), 8);
  EXPECT_EQ(count(own, OpStatus::kDiverged) + count(own, OpStatus::kVariant) + count(own, OpStatus::kOrder), 0);
  EXPECT_EQ(judged(recorded("published"), golden).outcome, golden::Verdict::Outcome::kFail);
  EXPECT_EQ(judged(recorded("hopper"), golden).outcome, golden::Verdict::Outcome::kFail);
}

// Hopper's steps stated in a file, with another quantiser, are mode hopper with the flags for that quantiser; a FNUZ unit is an FN one.
TEST(Modes, StatedHopper_HasHoppersBits) {
  const TempDir directory;
  const auto file = directory.path() / "hopper.json";
  std::ofstream(file) << R"({"name": "h", "quantiser": {"format": "ue8m0"}, "units": [
    {"inputs": ["e4m3fnuz"], "products": 32, "align_bits": 13, "result_bits": 13},
    {"inputs": ["bf16"], "products": 16, "align_bits": 25, "result_bits": 23}]})";
  const auto stated = mini().record({.mode = "arithmetic:" + file.string()}, {"p7"});
  const auto named = mini().record({.mode = "hopper", .scale = "ue8m0"}, {"p7"});
  ASSERT_EQ(stated.tensors.size(), named.tensors.size());
  for (const auto& [name, tensor] : named.tensors) {
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, stated.tensors.at(name).bytes)) << name;
  }
}

// Errors against exact arithmetic: the profile's own bits are the measure; a step too few in half of the elements is seen.
TEST(OracleRatio, IsOneForTheProfilesBits_AndMoreForOthers) {
  const golden::CompareOptions options{.cases = {}, .with_oracle_ratio = true};
  auto dump = recorded("published").tensors;
  const auto own = mini().compare(recorded("published"), {.tensors = dump, .unused = {}}, options);
  int64_t num_ratios = 0;
  for (const auto& op : own.ops) {
    num_ratios += op.oracle_ratio ? 1 : 0;
    EXPECT_EQ(op.oracle_ratio.value_or(1), 1) << op.op;
  }
  EXPECT_GT(num_ratios, 150);
  auto& norm = dump.at("p7/layer.1.attn_norm");
  std::vector<uint16_t> codes;
  for (const uint16_t code : norm.codes<uint16_t>()) {
    const bool kept = codes.size() % 2 == 0 || (code & 0x7FFF) == 0;
    codes.push_back(kept ? code : static_cast<uint16_t>(code - 1));
  }
  norm = model::make_tensor(norm.dtype, norm.shape, std::move(codes));
  const auto cut = mini().compare(recorded("published"), {.tensors = dump, .unused = {}}, options);
  const auto found = std::ranges::find(cut.ops, "layer.1.attn_norm", &golden::OpResult::op);
  ASSERT_NE(found, cut.ops.end());
  // Rounding: u / sqrt(3) of half a step each; one step more in half of the elements: sqrt((1 / 12 + 13 / 12) / 2) / sqrt(1 / 12).
  EXPECT_NEAR(found->oracle_ratio.value_or(0), std::sqrt(7), 0.3);
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
