// Every legal rule variant, recorded as somebody else's run: it is named, and it is told from the profile's own rule.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "reference/variants.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;
using model::OpKind;
using model::TensorView;

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

// A variant that nothing on mini can tell from the profile, and why.
bool is_invisible(const std::string& name, const ModeFlags& mode) {
  const bool same_frequencies = name.starts_with("frequency-");  // both orders round alike with mini's YaRN values
  const bool rare = name == "code-reciprocal";                   // changes 1 code in 2,000: none in 7 tokens
  const bool apart =
      name.ends_with("-shared-first");  // recorded runs hold the routed sum apart; below is a test of its own
  const bool no_ue8m0 = name.starts_with("ue8m0-") && mode.scale != "ue8m0";
  // How a partial sum meets its scales shows in the last bits of FP32 sums: BF16 hides it in these few tokens.
  const bool hidden = name.starts_with("hopper-triton") && mode.profile != "v32";
  const bool uncut = name == "partial-sums-4" || name == "partial-sums-8";  // two blocks of 128 are no four parts
  return same_frequencies || rare || apart || no_ue8m0 || hidden || uncut;
}

// Tensor cores that keep 23 bits or more below the largest exponent: their sums are another order of an FP32 one (modes_test.cpp).
bool is_as_fine_as_fp32(const std::string& name, const ModeFlags& mode) {
  return name.starts_with("hopper-mma") || name == "blackwell" || name == "ampere" ||
         (name == "hopper" && mode.profile == "hf");
}

// Of all variants, or of those named.
void expect_each_variant_is_named(const ModeFlags& mode, const std::set<std::string>& only = {}) {
  std::map<std::string, golden::GoldenFile> goldens;
  const auto profile = rules_of(resolved(mode, mini().checkpoint().config()));
  size_t tried = 0;
  for (const auto& variant : single_variants(profile)) {
    if (is_as_fine_as_fp32(variant.name, mode) || (!only.empty() && !only.contains(variant.name))) {
      continue;
    }
    RecordJob job;
    job.rules = variant.rules;
    // Seven keys are one block: the online forms equal the unnormalised one and need a long prompt.
    const std::string case_name = variant.name.starts_with("probs-online") ? "p129" : "p7";
    if (!goldens.contains(case_name)) {
      goldens.emplace(case_name, mini().record(mode, {case_name}));
    }
    const auto dump = mini().record(mode, {case_name}, job);
    const auto verdict = mini().compare(goldens.at(case_name), {.tensors = dump.tensors, .unused = {}});
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << variant.name << "\n" << complaints(verdict);
    const auto named = std::ranges::count(verdict.ops, variant.name, &golden::OpResult::variant);
    EXPECT_TRUE(named > 0 || is_invisible(variant.name, mode)) << variant.name << " cannot be told from the profile";
    ++tried;
  }
  EXPECT_GE(tried, only.empty() ? 15 : only.size());
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

TEST(Variants, OfProfileFp16_AreNamedAndToldApart) {
  // One rule of each kind of op; the steps that others round to BF16 are rounded to FP16 here.
  expect_each_variant_is_named({.profile = "fp16"},
                               {"norm-twice",
                                "residual-bf16",
                                "rope-bf16",
                                "swiglu-bf16",
                                "probs-unnormalised",
                                "combine-ranks-2",
                                "scale-ue8m0"});
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

// The nearest BF16 value, ties to even: the upper half of the bits.
float bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);
}

// How somebody else adds up a token's experts in BF16 steps.
struct ExpertSum {
  std::string name;
  bool by_slot = false;
  bool shared_first = false;
};

// FFN output of layer 1 of p7 from the dump's own expert outputs.
TensorView summed(const std::map<std::string, TensorView>& dump, const ExpertSum& how) {
  const std::string layer = "p7/layer.1.";
  const auto shared = model::to_double(dump.at(layer + "moe.shared"));
  const auto weights = model::to_double(dump.at(layer + "moe.topk_weights"));
  const auto& ids_tensor = dump.at(layer + "moe.topk_ids");
  const auto ids = ids_tensor.codes<int32_t>();
  const auto k = static_cast<size_t>(ids_tensor.row_len());
  const auto hidden = shared.size() / static_cast<size_t>(ids_tensor.num_rows());
  std::map<int32_t, size_t> rows_used;
  std::vector<float> y(shared.size());
  for (size_t t = 0; t < y.size() / hidden; ++t) {
    std::vector<size_t> slots(k);
    std::iota(slots.begin(), slots.end(), t * k);
    if (!how.by_slot) {
      std::ranges::sort(slots, {}, [&](size_t slot) { return ids[slot]; });
    }
    for (size_t i = 0; i < hidden; ++i) {
      float sum = how.shared_first ? static_cast<float>(shared[t * hidden + i]) : 0;
      for (const size_t slot : slots) {
        const auto& expert = dump.at(layer + "moe.expert." + std::to_string(ids[slot]));
        const auto x = model::to_double(model::slice_rows(
            expert, static_cast<int64_t>(rows_used[ids[slot]]), static_cast<int64_t>(rows_used[ids[slot]] + 1)))[i];
        sum = bf16(sum + bf16(static_cast<float>(x) * static_cast<float>(weights[slot])));
      }
      y[t * hidden + i] = how.shared_first ? sum : bf16(sum + static_cast<float>(shared[t * hidden + i]));
    }
    for (const size_t slot : slots) {
      ++rows_used[ids[slot]];
    }
  }
  return model::make_tensor(model::DType::kF32, dump.at(layer + "ffn").shape, std::move(y));
}

// The dump holds no routed sum: then the shared expert may have come first.
TEST(Variants, SumsOfExpertsInBf16_AreNamedByTheirOrder_AndToldApart) {
  const auto golden = mini().record({}, {"p7"});
  const auto original = mini().dump("v32_fp8.safetensors", "v32");
  for (const ExpertSum& how : {ExpertSum{"combine-bf16"},
                               ExpertSum{"combine-bf16-by-slot", true},
                               ExpertSum{"combine-bf16-shared-first", false, true},
                               ExpertSum{"combine-bf16-by-slot-shared-first", true, true}}) {
    auto dump = original;
    dump.tensors["p7/layer.1.ffn"] = summed(original.tensors, how);
    const auto verdict = mini().compare(golden, dump);
    const auto ffn = std::ranges::find(verdict.ops, "layer.1.ffn", &golden::OpResult::op);
    ASSERT_NE(ffn, verdict.ops.end());
    EXPECT_EQ(ffn->status, OpStatus::kVariant) << how.name;
    EXPECT_EQ(ffn->variant, how.name);
  }
}

}  // namespace
}  // namespace tools
