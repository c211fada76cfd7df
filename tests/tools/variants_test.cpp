// Every legal rule variant, recorded as somebody else's run: it is named, and it is told from the profile's own rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "reference/variants.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;
using model::OpKind;

std::set<OpKind> all_kinds() {
  std::set<OpKind> kinds;
  for (int kind = 0; kind <= static_cast<int>(OpKind::kHead); ++kind) {
    kinds.insert(static_cast<OpKind>(kind));
  }
  return kinds;
}

// Variants that change one rule; the online forms need more keys than one block has, so they get the prompt of 129 tokens.
std::vector<reference::Variant> single_variants(const reference::Rules& profile) {
  auto variants = reference::rule_variants(profile, all_kinds());
  std::erase_if(variants, [](const reference::Variant& v) { return v.name.find('+') != std::string::npos; });
  return variants;
}

const Fixture& mini() {
  static const Fixture fixture(std::filesystem::path(DSV3_SOURCE_DIR) / "golden/data/mini");
  return fixture;
}

// A variant that nothing on mini can tell from the profile, and why.
bool is_invisible(const std::string& name, const ModeFlags& mode) {
  const bool same_frequencies = name.starts_with("frequency-");  // both orders round alike with mini's YaRN values
  const bool rare = name == "code-reciprocal";                   // changes 1 code in 2,000: none in 7 tokens
  const bool no_ue8m0 = name.starts_with("ue8m0-") && mode.scale != "ue8m0";
  return same_frequencies || rare || no_ue8m0;
}

void expect_each_variant_is_named(const ModeFlags& mode) {
  const std::map<std::string, golden::GoldenFile> goldens{{"p7", mini().record(mode, {"p7"})},
                                                          {"p129", mini().record(mode, {"p129"})}};
  const auto profile = rules_of(resolved(mode, mini().checkpoint().config()));
  int64_t tried = 0;
  for (const auto& variant : single_variants(profile)) {
    RecordJob job;
    job.rules = variant.rules;
    // Seven keys are one block: the online forms equal the unnormalised one and need a long prompt.
    const std::string case_name = variant.name.starts_with("probs-online") ? "p129" : "p7";
    const auto dump = mini().record(mode, {case_name}, job);
    const auto verdict = mini().compare(goldens.at(case_name), {.tensors = dump.tensors, .unused = {}});
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << variant.name << "\n" << complaints(verdict);
    const auto named = std::ranges::count(verdict.ops, variant.name, &golden::OpResult::variant);
    EXPECT_TRUE(named > 0 || is_invisible(variant.name, mode)) << variant.name << " cannot be told from the profile";
    ++tried;
  }
  EXPECT_GE(tried, 15);
}

TEST(Variants, OfProfileV32_AreNamedAndToldApart) {
  expect_each_variant_is_named({});
}

TEST(Variants, OfProfileV3Demo_AreNamedAndToldApart) {
  expect_each_variant_is_named({.profile = "v3-demo"});
}

TEST(Variants, OfUe8m0Scales_AreNamedAndToldApart) {
  expect_each_variant_is_named({.profile = "v3-demo", .scale = "ue8m0"});
}

TEST(Variants, OfProfileHf_AreNamedAndToldApart) {
  expect_each_variant_is_named({.profile = "hf"});
}

// Two published profiles differ in many rules at once; each op names the ones it sees.
TEST(Variants, HfJudgedAsV3Demo_AndTheReverse_NameTheDifference) {
  const ModeFlags demo{.profile = "v3-demo", .gemm = "bf16", .attention = "naive"};
  const ModeFlags hf{.profile = "hf"};
  for (const bool reverse : {false, true}) {
    const auto golden = mini().record(reverse ? demo : hf, {"p7"});
    const auto dump = mini().record(reverse ? hf : demo, {"p7"});
    const auto verdict = mini().compare(golden, {.tensors = dump.tensors, .unused = {}});
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
    std::set<std::string> named;
    for (const auto& op : verdict.ops) {
      if (op.status == OpStatus::kVariant) {
        named.insert(op.variant);
      }
    }
    EXPECT_TRUE(named.contains(reverse ? "router-fp32" : "router-bf16"));
    EXPECT_TRUE(named.contains(reverse ? "rope-bf16" : "rope-fp32") || named.contains("frequency-hf+rope-bf16"));
  }
}

}  // namespace
}  // namespace tools
