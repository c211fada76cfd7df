// Linears that ranks share: each part of K is rounded to BF16, then the parts are added.
#include "reference/partial_sums.hpp"

#include <gtest/gtest.h>

#include "reference/estimate_call.hpp"
#include "reference/variants.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference {
namespace {

HandMadeOp shared_linear(const std::string& id, int64_t num_parts, Gemm gemm = Gemm::kBf16) {
  HandMadeOp linear;
  linear.op.kind = model::OpKind::kLinear;
  linear.op.id = id;
  linear.rules.gemm = gemm;
  linear.rules.partial_sums = num_parts;
  return linear;
}

// BF16 numbers from 256 on are 2 apart. 256 + 1 is a tie and goes to 256, so two parts give 256 + 2; one sum, 259, is a tie that goes
// to 260.
TEST(PartialSums, EachPartIsRounded) {
  for (const auto& [id, num_parts, expected] :
       {std::tuple{"layer.0.attn.o_proj", 2, 258.0}, {"layer.0.ffn", 2, 258.0}, {"layer.3.moe.shared", 2, 258.0}}) {
    auto linear = shared_linear(id, num_parts);
    linear.set_weight(bf16({1, 4}, {256, 1, 1, 1}));
    EXPECT_EQ(numbers(linear.run({bf16({1, 4}, {1, 1, 1, 1})})), Numbers{expected}) << id;
  }
}

TEST(PartialSums, LinearsThatRanksDoNotShare_AreOneSum) {
  for (const auto& [id, num_parts] :
       {std::pair{"layer.0.attn.o_proj", 1}, {"layer.0.attn.o_proj", 8}, {"layer.0.attn.q_a", 2}}) {
    auto linear = shared_linear(id, num_parts);  // 4 columns are no 8 parts
    linear.set_weight(bf16({1, 4}, {256, 1, 1, 1}));
    EXPECT_EQ(numbers(linear.run({bf16({1, 4}, {1, 1, 1, 1})})), Numbers{260}) << id << " " << num_parts;
  }
}

// Each part has its own blocks, and their scales: 448 * 1 and 448 * 4; both fit BF16.
TEST(PartialSums, Fp8PartsTakeTheirScalesAlong) {
  auto linear = shared_linear("layer.0.attn.o_proj", 2, Gemm::kFp8);
  std::vector<float> ones(256, 1);
  linear.set_weight(f8({1, 256}, ones), f32({1, 2}, {1, 4}));
  std::vector<float> x(256, 0.0f);
  x[127] = 448;
  x[128] = 448;
  EXPECT_EQ(numbers(linear.run({bf16({1, 256}, x)})), Numbers{2240});
}

TEST(PartialSums, TheBoundHoldsTheSumOfRoundedPartsAndNotTheOtherOne) {
  auto linear = shared_linear("layer.0.attn.o_proj", 2);
  linear.set_weight(bf16({1, 4}, {256, 1, 1, 1}));
  const auto estimate = estimate_op({.rules = linear.rules,
                                     .workload = linear.workload,
                                     .weights = linear.weights,
                                     .op = linear.op,
                                     .inputs = {given(bf16({1, 4}, {1, 1, 1, 1}))}});
  // 257 is a tie: the least error of a part moves it to 258.
  EXPECT_NEAR(estimate.value[0], 258, 1e-9);
  EXPECT_GE(estimate.error[0], 2);
  EXPECT_LT(estimate.error[0], 2.1);
}

TEST(PartialSums, AreVariantsOfLinears) {
  std::set<std::string> names;
  for (const Variant& variant :
       rule_variants(v32_rules(Gemm::kFp8, model::ScaleFormat::kFp32), {model::OpKind::kLinear})) {
    names.insert(variant.name);
  }
  for (const char* name : {"partial-sums-2", "partial-sums-4", "partial-sums-8", "hopper+partial-sums-8"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

}  // namespace
}  // namespace reference
