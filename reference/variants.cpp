#include "reference/variants.hpp"

#include <functional>
#include <utility>

#include "reference/tensor_core/linear_recipes.hpp"

namespace reference {
namespace {

using model::OpKind;

// One rule a run may follow instead of the profile's, and the op kinds it shows in.
struct Alternative {
  std::string name;
  std::set<OpKind> kinds;
  std::function<void(Rules&)> apply;
  std::function<bool(const Rules& profile)> applies = [](const Rules&) { return true; };
};

const std::set<OpKind> kLinears{OpKind::kLinear, OpKind::kMtpConcat};
const std::set<OpKind> kOnTensorCores{OpKind::kLinear, OpKind::kMtpConcat, OpKind::kRouterLogits, OpKind::kHead};
const std::set<OpKind> kRotations{OpKind::kRotateQuery, OpKind::kRotateKey};
const std::set<OpKind> kSoftmax{OpKind::kAttentionProbs, OpKind::kAttentionLse};
const std::set<OpKind> kProbs{OpKind::kAttentionProbs, OpKind::kAttentionContext, OpKind::kOutputLatent};
const std::set<OpKind> kValueProduct{OpKind::kAttentionContext, OpKind::kOutputLatent};
// Only to be seen where the combine and the sum with the shared expert are judged as one.
const std::set<OpKind> kCombineWithShared{OpKind::kMoeOutput};
const std::set<OpKind> kRouter{OpKind::kRouterLogits, OpKind::kRouterScores, OpKind::kRouterWeights};

// Whether a recipe says something of its own about linears under these rules: it has the units, and none before it in the list
// computes the same. All forms of a recipe share the path of BF16 operands.
bool is_distinct(const tensor_core::Recipe& recipe, const Rules& profile) {
  if (profile.gemm == Gemm::kFp8) {
    return tensor_core::has_unit(recipe, tensor_core::Format::kE4m3);
  }
  return recipe.name == "hopper" || recipe.name == "ampere";
}

// Linears as known tensor cores add them up, under the names of the recipes.
std::vector<Alternative> tensor_cores() {
  std::vector<Alternative> list;
  for (const auto& recipe : tensor_core::linear_recipes()) {
    list.push_back({recipe->name,
                    kOnTensorCores,
                    [recipe](Rules& r) { r = with_recipe(r, recipe); },
                    [recipe](const Rules& r) { return r.half == model::DType::kBF16 && is_distinct(*recipe, r); }});
  }
  return list;
}

bool quantises(const Rules& profile) {
  return profile.gemm == Gemm::kFp8;
}

std::vector<Alternative> make_alternatives() {
  std::vector<Alternative> list = tensor_cores();
  const std::vector<Alternative> others{
      {"norm-once", {OpKind::kRmsNorm}, [](Rules& r) { r.norm = NormRounding::kOnce; }},
      {"norm-twice", {OpKind::kRmsNorm}, [](Rules& r) { r.norm = NormRounding::kTwice; }},
      {"residual-fused",
       {OpKind::kRmsNorm, OpKind::kLayerOutput},
       [](Rules& r) { r.residual = ResidualRule::kFusedPair; }},
      {"residual-bf16",
       {OpKind::kRmsNorm, OpKind::kLayerOutput},
       [](Rules& r) { r.residual = ResidualRule::kRounded; }},
      {"frequency-official", kRotations, [](Rules& r) { r.frequency = FrequencyOrder::kOfficial; }},
      {"frequency-hf", kRotations, [](Rules& r) { r.frequency = FrequencyOrder::kHuggingFace; }},
      {"rope-fp32", kRotations, [](Rules& r) { r.rope = RopeRule::kFp32; }},
      {"rope-bf16", kRotations, [](Rules& r) { r.rope = RopeRule::kBf16Steps; }},
      {"scores-fp32", kSoftmax, [](Rules& r) { r.scores = ScoreRule::kFp32; }},
      {"scores-bf16", kSoftmax, [](Rules& r) { r.scores = ScoreRule::kBf16Steps; }},
      {"probs-bf16", kProbs, [](Rules& r) { r.probs = ProbsRule::kBf16BeforeValue; }},
      {"probs-stored-bf16", kProbs, [](Rules& r) { r.probs = ProbsRule::kBf16Stored; }},
      {"probs-unnormalised", kValueProduct, [](Rules& r) { r.probs = ProbsRule::kUnnormalised; }},
      {"probs-online-64", kValueProduct, [](Rules& r) { r.probs = ProbsRule::kOnline64; }},
      {"probs-online-128", kValueProduct, [](Rules& r) { r.probs = ProbsRule::kOnline128; }},
      {"probs-fp32", kProbs, [](Rules& r) { r.probs = ProbsRule::kFp32; }},
      {"router-fp32", kRouter, [](Rules& r) { r.router = RouterRule::kFp32; }},
      {"router-bf16", kRouter, [](Rules& r) { r.router = RouterRule::kBf16; }},
      {"swiglu-fp32", {OpKind::kSwiglu}, [](Rules& r) { r.swiglu = SwigluRule::kFp32; }},
      {"swiglu-bf16", {OpKind::kSwiglu}, [](Rules& r) { r.swiglu = SwigluRule::kBf16Steps; }},
      {"combine-fp32", {OpKind::kCombine}, [](Rules& r) { r.combine = CombineRule::kFp32; }},
      {"combine-fp32-stored-bf16", {OpKind::kCombine}, [](Rules& r) { r.combine = CombineRule::kFp32StoredBf16; }},
      {"combine-bf16-by-slot", {OpKind::kCombine}, [](Rules& r) { r.combine = CombineRule::kBf16BySlot; }},
      {"combine-bf16", {OpKind::kCombine}, [](Rules& r) { r.combine = CombineRule::kBf16; }},
      {"combine-bf16-shared-first", kCombineWithShared, [](Rules& r) { r.combine = CombineRule::kBf16SharedFirst; }},
      {"combine-bf16-by-slot-shared-first",
       kCombineWithShared,
       [](Rules& r) { r.combine = CombineRule::kBf16BySlotSharedFirst; }},
      {"cache-bf16", {OpKind::kCacheLatent}, [](Rules& r) { r.cache = CacheRule::kBf16; }},
      {"cache-fp8", {OpKind::kCacheLatent}, [](Rules& r) { r.cache = CacheRule::kFp8; }},
      {"head-fp32", {OpKind::kHead}, [](Rules& r) { r.head = HeadRule::kFp32; }},
      {"head-bf16", {OpKind::kHead}, [](Rules& r) { r.head = HeadRule::kBf16; }},
      {"scale-fp32", kLinears, [](Rules& r) { r.quantize.format = model::ScaleFormat::kFp32; }, quantises},
      {"scale-ue8m0", kLinears, [](Rules& r) { r.quantize.format = model::ScaleFormat::kUe8m0; }, quantises},
      {"ue8m0-everywhere", kLinears, [](Rules& r) { r.ue8m0_reach = Ue8m0Reach::kEveryLinear; }, quantises},
      {"ue8m0-partly", kLinears, [](Rules& r) { r.ue8m0_reach = Ue8m0Reach::kPlainLinears; }, quantises},
      {"scale-divide", kLinears, [](Rules& r) { r.quantize.scale = ScaleFormula::kDivide; }, quantises},
      {"scale-reciprocal", kLinears, [](Rules& r) { r.quantize.scale = ScaleFormula::kTimesReciprocal; }, quantises},
      {"code-divide", kLinears, [](Rules& r) { r.quantize.code = CodeFormula::kDivide; }, quantises},
      {"code-max-over-amax", kLinears, [](Rules& r) { r.quantize.code = CodeFormula::kTimesMaxOverAmax; }, quantises},
      {"code-reciprocal", kLinears, [](Rules& r) { r.quantize.code = CodeFormula::kTimesReciprocal; }, quantises},
      {"sum-fp32",
       kLinears,
       [](Rules& r) {
         r.linear_sum = LinearSum::kWrittenOrder;
         r.recipe = nullptr;
       },
       [](const Rules& profile) { return profile.linear_sum == LinearSum::kTensorCore; }},
  };
  list.insert(list.end(), others.begin(), others.end());
  for (const int64_t ranks : {2, 4, 8}) {
    list.push_back({"partial-sums-" + std::to_string(ranks), kLinears, [ranks](Rules& r) { r.partial_sums = ranks; }});
    list.push_back({"combine-ranks-" + std::to_string(ranks), {OpKind::kCombine}, [ranks](Rules& r) {
                      r.combine = CombineRule::kFp32;
                      r.expert_ranks = ranks;
                    }});
  }
  return list;
}

const std::vector<Alternative>& alternatives() {
  static const auto list = make_alternatives();
  return list;
}

bool shows_in(const Alternative& alternative, const Rules& profile, const std::set<OpKind>& kinds) {
  if (!alternative.applies(profile)) {
    return false;
  }
  Rules changed = profile;
  alternative.apply(changed);
  if (changed == profile || (profile.exact() && changed.frequency == profile.frequency)) {
    return false;
  }
  for (const OpKind kind : alternative.kinds) {
    if (kinds.contains(kind)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<Variant> rule_variants(const Rules& profile, const std::set<model::OpKind>& kinds) {
  std::vector<const Alternative*> usable;
  for (const Alternative& alternative : alternatives()) {
    if (shows_in(alternative, profile, kinds)) {
      usable.push_back(&alternative);
    }
  }
  std::vector<Variant> variants;
  for (const Alternative* one : usable) {
    variants.push_back({one->name, profile});
    one->apply(variants.back().rules);
  }
  for (size_t i = 0; i < usable.size(); ++i) {
    for (size_t j = i + 1; j < usable.size(); ++j) {
      Variant both{usable[i]->name + "+" + usable[j]->name, profile};
      usable[i]->apply(both.rules);
      const Rules first = both.rules;
      usable[j]->apply(both.rules);
      if (first.recipe == both.rules.recipe || first.recipe == profile.recipe) {  // not two arithmetics at once
        variants.push_back(std::move(both));
      }
    }
  }
  return variants;
}

}  // namespace reference
