#include "reference/variants.hpp"

#include <functional>

namespace reference {
namespace {

using model::OpKind;

// One rule a run may follow instead of the profile's, and the op kinds it shows in.
struct Alternative {
  std::string name;
  std::set<OpKind> kinds;
  std::function<void(Rules&)> apply;
};

const std::set<OpKind> kQuantising{OpKind::kLinear, OpKind::kMtpConcat};
const std::set<OpKind> kRotations{OpKind::kRotateQuery, OpKind::kRotateKey};
const std::set<OpKind> kSoftmax{OpKind::kAttentionProbs, OpKind::kAttentionLse};
const std::set<OpKind> kProbs{OpKind::kAttentionProbs, OpKind::kAttentionContext, OpKind::kOutputLatent};
const std::set<OpKind> kValueProduct{OpKind::kAttentionContext, OpKind::kOutputLatent};
// Only to be seen where the combine and the sum with the shared expert are judged as one.
const std::set<OpKind> kCombineWithShared{OpKind::kMoeOutput};
const std::set<OpKind> kRouter{OpKind::kRouterLogits, OpKind::kRouterScores, OpKind::kRouterWeights};

const std::vector<Alternative>& alternatives() {
  static const std::vector<Alternative> list{
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
      {"scale-fp32", kQuantising, [](Rules& r) { r.quantize.format = model::ScaleFormat::kFp32; }},
      {"scale-ue8m0", kQuantising, [](Rules& r) { r.quantize.format = model::ScaleFormat::kUe8m0; }},
      {"ue8m0-everywhere", kQuantising, [](Rules& r) { r.ue8m0_reach = Ue8m0Reach::kEveryLinear; }},
      {"ue8m0-partly", kQuantising, [](Rules& r) { r.ue8m0_reach = Ue8m0Reach::kPlainLinears; }},
      {"scale-divide", kQuantising, [](Rules& r) { r.quantize.scale = ScaleFormula::kDivide; }},
      {"scale-reciprocal", kQuantising, [](Rules& r) { r.quantize.scale = ScaleFormula::kTimesReciprocal; }},
      {"code-divide", kQuantising, [](Rules& r) { r.quantize.code = CodeFormula::kDivide; }},
      {"code-max-over-amax", kQuantising, [](Rules& r) { r.quantize.code = CodeFormula::kTimesMaxOverAmax; }},
      {"code-reciprocal", kQuantising, [](Rules& r) { r.quantize.code = CodeFormula::kTimesReciprocal; }},
  };
  return list;
}

bool shows_in(const Alternative& alternative, const Rules& profile, const std::set<OpKind>& kinds) {
  Rules changed = profile;
  alternative.apply(changed);
  if (changed == profile || (profile.exact() && changed.frequency == profile.frequency)) {
    return false;
  }
  if (alternative.kinds == kQuantising && profile.gemm != Gemm::kFp8) {
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
      variants.push_back({usable[i]->name + "+" + usable[j]->name, profile});
      usable[i]->apply(variants.back().rules);
      usable[j]->apply(variants.back().rules);
    }
  }
  return variants;
}

}  // namespace reference
