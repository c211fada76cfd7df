// From file to verdict on the committed checkpoint: an independent dump passes, and damage to a dump is seen where it is. Planted
// faults have their own test, faults_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "golden/verdict.hpp"
#include "tests/tools/verifier.hpp"

namespace tools {
namespace {

using golden::OpStatus;
using golden::Verdict;

const golden::GoldenFile& golden_v32() {
  static const auto golden = mini().record({}, kFullCases);
  return golden;
}

golden::Dump independent_dump() {
  return mini().dump("v32_fp8.safetensors", "v32");
}

const golden::OpResult& result_of(const Verdict& verdict, const std::string& case_name, const std::string& op) {
  const auto found = std::find_if(verdict.ops.begin(), verdict.ops.end(), [&](const golden::OpResult& r) {
    return r.case_name == case_name && r.op == op;
  });
  EXPECT_NE(found, verdict.ops.end()) << case_name << "/" << op;
  return *found;
}

// The dump with the bytes of one tensor changed by `change`.
template <typename Change>
golden::Dump damaged(golden::Dump dump, const std::string& name, const Change& change) {
  auto& tensor = dump.tensors.at(name);
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor.bytes.begin(), tensor.bytes.end());
  change(*bytes);
  tensor.bytes = *bytes;
  tensor.owner = bytes;
  return dump;
}

// Moves one BF16 or FP32 element by `steps` of its format.
golden::Dump nudged(golden::Dump dump, const std::string& name, int64_t element, int32_t steps) {
  const auto width = static_cast<size_t>(model::dtype_bytes(dump.tensors.at(name).dtype));
  return damaged(std::move(dump), name, [&](std::vector<std::byte>& bytes) {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + static_cast<size_t>(element) * width, width);
    code += static_cast<uint32_t>(steps);
    std::memcpy(bytes.data() + static_cast<size_t>(element) * width, &code, width);
  });
}

TEST(VerifyMini, TheDumpOfDeepSeeksV32Code_Passes) {
  const auto verdict = mini().compare(golden_v32(), independent_dump());
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
  // 511 tensors of five cases; no legal variant is needed, and none uses more than a quarter of its bound.
  EXPECT_EQ(verdict.ops.size(), 511U);
  for (const auto& op : verdict.ops) {
    EXPECT_TRUE(op.status == OpStatus::kSame || op.status == OpStatus::kOrder) << op.case_name << "/" << op.op;
    EXPECT_LT(op.max_bound_use, 0.25) << op.case_name << "/" << op.op;
  }
}

TEST(VerifyMini, OurOwnRun_IsTheSameBitForBit) {
  const golden::Dump own{.tensors = golden_v32().tensors, .unused = {}};
  const auto verdict = mini().compare(golden_v32(), own);
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
  for (const auto& op : verdict.ops) {
    EXPECT_EQ(op.status, OpStatus::kSame) << op.case_name << "/" << op.op;
    EXPECT_EQ(op.free_status, "same") << op.case_name << "/" << op.op;
  }
}

// The softmax scale without mscale squared, in exact mode: the fault is in the semantics, so the mode does not matter.
TEST(VerifyMini, AFaultInExactMode_FailsWhereItStarts) {
  const ModeFlags exact{.mode = "exact"};
  const auto golden = mini().record(exact, {"p2", "p7"});
  RecordJob job;
  job.fault = "bb-18";
  const auto faulty = mini().record(exact, {"p2", "p7"}, job);
  const auto verdict = mini().compare(golden, {.tensors = faulty.tensors, .unused = {}});
  ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.0.attn.probs");
  EXPECT_EQ(
      verdict.first_divergence()->divergence->reads,
      (std::vector<std::string>{"cache.0.latent", "layer.0.attn.kv_b", "layer.0.attn.q_b", "layer.0.attn.q_rope"}));
}

// One BF16 step in one element of any tensor of a case: the op itself diverges, unless its interval reaches both neighbours.
TEST(VerifyMini, OneStepInOneBf16Element_IsSeenInItsOp) {
  const auto dump = independent_dump();
  std::mt19937 random(7);
  int64_t seen = 0;
  int64_t tried = 0;
  for (const auto& [name, tensor] : dump.tensors) {
    // A quarter of p7 is enough; its embedding and cache are read by later cases as well.
    if (!name.starts_with("p7/") || tensor.dtype != model::DType::kBF16 || random() % 4 != 0) {
      continue;
    }
    const auto element = static_cast<int64_t>(random() % static_cast<uint64_t>(tensor.size()));
    const auto verdict = mini().compare(golden_v32(), nudged(dump, name, element, 1), {.cases = {"p7"}});
    ++tried;
    const auto& result = result_of(verdict, "p7", name.substr(3));
    seen += result.status == OpStatus::kDiverged && verdict.outcome == Verdict::Outcome::kFail ? 1 : 0;
  }
  ASSERT_GT(tried, 30);
  EXPECT_GE(seen, tried - 1) << seen << " of " << tried;
}

TEST(VerifyMini, TruncationInsteadOfRounding_Diverges) {
  auto dump = independent_dump();
  // final_norm is BF16; the true last step is lost in about half of the elements if the exact value is cut off.
  const auto exact = mini().record({.mode = "exact"}, {"p7"});
  auto truncated = model::to_double(exact.tensors.at("p7/final_norm"));
  std::vector<uint16_t> codes;
  for (const double value : truncated) {
    const auto single = static_cast<float>(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &single, sizeof(bits));
    codes.push_back(static_cast<uint16_t>(bits >> 16));
  }
  const golden::Dump alone{.tensors = {{"p7/layer.2.output", exact.tensors.at("p7/layer.2.output")},
                                       {"p7/final_norm", model::make_tensor(model::DType::kBF16, {7, 256}, codes)}},
                           .unused = {}};
  const auto verdict = mini().compare(golden_v32(), alone, {.cases = {"p7"}});
  EXPECT_EQ(result_of(verdict, "p7", "final_norm").status, OpStatus::kDiverged);
  EXPECT_LT(result_of(verdict, "p7", "final_norm").bias_z, -10);
}

TEST(VerifyMini, AWiderStoredTensorIsAVariant_ANarrowerOneDiverges) {
  const auto dump = independent_dump();
  auto wide = dump;
  // BF16 values in an F32 container are the rule's values.
  const auto values = model::to_double(dump.tensors.at("p7/layer.0.attn.o_proj"));
  wide.tensors["p7/layer.0.attn.o_proj"] =
      model::make_tensor(model::DType::kF32, {7, 256}, std::vector<float>(values.begin(), values.end()));
  EXPECT_EQ(mini().compare(golden_v32(), wide, {.cases = {"p7"}}).outcome, Verdict::Outcome::kPass);

  // FP32 logits cut to BF16: the profile's rule is FP32, but BF16 logits are a published rule; cut to BF16 by truncation they are not.
  auto narrow = dump;
  std::vector<uint16_t> codes;
  const auto logits = dump.tensors.at("p7/logits").codes<float>();
  for (const float value : logits) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    codes.push_back(static_cast<uint16_t>(bits >> 16));
  }
  narrow.tensors["p7/logits"] = model::make_tensor(model::DType::kBF16, {7, 2048}, codes);
  const auto verdict = mini().compare(golden_v32(), narrow, {.cases = {"p7"}});
  EXPECT_EQ(result_of(verdict, "p7", "logits").status, OpStatus::kDiverged);
}

TEST(VerifyMini, NanAndInfinity_DivergeWhereTheyAre) {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto dump = damaged(independent_dump(), "p7/logits", [poison](std::vector<std::byte>& bytes) {
      std::memcpy(bytes.data() + 4 * 2049, &poison, 4);
    });
    const auto verdict = mini().compare(golden_v32(), dump, {.cases = {"p7"}});
    ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
    EXPECT_EQ(verdict.first_divergence()->op, "logits");
    EXPECT_EQ(verdict.first_divergence()->divergence->coordinate, (std::vector<int64_t>{1, 1}));
  }
}

TEST(VerifyMini, AMissingTensorThatNoRunSpans_IsUndecided) {
  auto dump = independent_dump();
  dump.tensors.erase("p7/layer.1.attn.q_a_norm");
  const auto verdict = mini().compare(golden_v32(), dump, {.cases = {"p7"}});
  // q_b is judged through norm + quantise + linear, so nothing is lost.
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);

  dump.tensors.erase("p7/layer.1.attn.o_proj");
  const auto without = mini().compare(golden_v32(), dump, {.cases = {"p7"}});
  EXPECT_EQ(without.outcome, Verdict::Outcome::kUndecided);
  EXPECT_EQ(result_of(without, "p7", "layer.1.attn.o_proj").status, OpStatus::kMissing);
  EXPECT_EQ(result_of(without, "p7", "layer.1.ffn_norm").status, OpStatus::kUndecided);
}

TEST(VerifyMini, LogitsAlone_AreNeverAPass) {
  const auto dump = independent_dump();
  const golden::Dump logits{.tensors = {{"p7/logits", dump.tensors.at("p7/logits")}}, .unused = {}};
  EXPECT_EQ(mini().compare(golden_v32(), logits, {.cases = {"p7"}}).outcome, Verdict::Outcome::kUndecided);
}

TEST(VerifyMini, AnotherPublishedRule_IsNamed_AndFailsOnlyWhenStrict) {
  auto job = mini().record({.scale = "ue8m0"}, {"p7"});
  const golden::Dump dump{.tensors = job.tensors, .unused = {}};
  const auto verdict = mini().compare(golden_v32(), dump, {.cases = {"p7"}});
  EXPECT_EQ(verdict.outcome, Verdict::Outcome::kPass) << complaints(verdict);
  EXPECT_EQ(result_of(verdict, "p7", "layer.0.attn.q_a").status, OpStatus::kVariant);
  EXPECT_EQ(result_of(verdict, "p7", "layer.0.attn.q_a").variant, "scale-ue8m0");
  EXPECT_EQ(mini().compare(golden_v32(), dump, {.cases = {"p7"}, .strict = true}).outcome, Verdict::Outcome::kFail);
}

TEST(VerifyMini, AnExpertChosenThoughABetterOneWasThere_Diverges) {
  const auto dump = independent_dump();
  const auto ids = dump.tensors.at("p7/layer.1.moe.topk_ids").codes<int32_t>();
  std::vector<int32_t> wrong(ids.begin(), ids.end());
  for (int32_t expert = 0; expert < 16; ++expert) {  // any expert that token 3 did not choose
    if (std::find(wrong.begin() + 12, wrong.begin() + 16, expert) == wrong.begin() + 16) {
      wrong[15] = expert;
      break;
    }
  }
  auto changed = dump;
  changed.tensors["p7/layer.1.moe.topk_ids"] = model::make_tensor(model::DType::kI32, {7, 4}, wrong);
  const auto verdict = mini().compare(golden_v32(), changed, {.cases = {"p7"}});
  ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.1.moe.topk_ids");
  EXPECT_EQ(verdict.first_divergence()->divergence->token, 3);
}

TEST(VerifyMini, PinnedRouting_JudgesTheRestUnderTheDumpsChoice) {
  // A run whose router has its bias in the mixing weights: with ids and weights pinned, everything else is right.
  RecordJob job;
  job.fault = "bb-02";
  const auto faulty = mini().record({}, {"p7"}, job);
  const golden::Dump dump{.tensors = faulty.tensors, .unused = {}};
  EXPECT_EQ(mini().compare(golden_v32(), dump, {.cases = {"p7"}}).outcome, Verdict::Outcome::kFail);
  EXPECT_EQ(mini().compare(golden_v32(), dump, {.cases = {"p7"}, .pin_routing = golden::PinRouting::kIds}).outcome,
            Verdict::Outcome::kFail);
  const auto pinned =
      mini().compare(golden_v32(), dump, {.cases = {"p7"}, .pin_routing = golden::PinRouting::kIdsAndWeights});
  EXPECT_EQ(pinned.outcome, Verdict::Outcome::kPass) << complaints(pinned);
  EXPECT_EQ(pinned.notes, (std::vector<std::string>{"p7: routing pinned to the dump's, not judged"}));
}

TEST(VerifyMini, ExpertIdsOutOfRange_DivergeInsteadOfCrashing) {
  for (const int32_t bad : {-1, 16, std::numeric_limits<int32_t>::max()}) {
    auto dump = independent_dump();
    const auto ids = dump.tensors.at("p7/layer.1.moe.topk_ids").codes<int32_t>();
    std::vector<int32_t> wrong(ids.begin(), ids.end());
    wrong[5] = bad;
    dump.tensors["p7/layer.1.moe.topk_ids"] = model::make_tensor(model::DType::kI32, {7, 4}, wrong);
    const auto verdict = mini().compare(golden_v32(), dump, {.cases = {"p7"}});
    EXPECT_EQ(result_of(verdict, "p7", "layer.1.moe.topk_ids").status, OpStatus::kDiverged) << bad;
  }
}

TEST(VerifyMini, AStaleCacheRow_DivergesInTheCache) {
  const auto dump = nudged(independent_dump(), "d7/cache.1.latent", 3 * 160 + 5, 1);  // row 3 was written by p7
  const auto verdict = mini().compare(golden_v32(), dump, {.cases = {"d7"}});
  ASSERT_EQ(verdict.outcome, Verdict::Outcome::kFail);
  EXPECT_EQ(verdict.first_divergence()->op, "cache.1.latent");
  EXPECT_EQ(verdict.first_divergence()->divergence->coordinate, (std::vector<int64_t>{3, 5}));
}

TEST(VerifyMini, UnknownCase_IsRefused) {
  EXPECT_THROW((void)mini().compare(golden_v32(), independent_dump(), {.cases = {"p8"}}), model::InputError);
}

}  // namespace
}  // namespace tools
