#include "reference/rules.hpp"

#include <utility>

#include "reference/partial_sums.hpp"
#include "reference/tensor_core/linear_recipes.hpp"

namespace reference {

Rules exact_rules() {
  return {.arithmetic = Arithmetic::kExact, .gemm = Gemm::kBf16};
}

Rules v32_rules(Gemm gemm, model::ScaleFormat scale_format) {
  return {.gemm = gemm, .quantize = {.format = scale_format}};
}

Rules v3_demo_rules(Gemm gemm, model::ScaleFormat scale_format) {
  return {.norm = NormRounding::kTwice,
          .residual = ResidualRule::kRounded,
          .gemm = gemm,
          .quantize = {.format = scale_format, .scale = ScaleFormula::kDivide},
          .ue8m0_reach = Ue8m0Reach::kPlainLinears,
          .association = ScaleAssociation::kActivationFirst,
          .scores = ScoreRule::kBf16Steps,
          .router = RouterRule::kBf16,
          .swiglu = SwigluRule::kBf16Steps,
          .combine = CombineRule::kBf16,
          .head = HeadRule::kBf16};
}

Rules fp16_rules(Gemm gemm, model::ScaleFormat scale_format) {
  Rules rules = v32_rules(gemm, scale_format);
  rules.half = model::DType::kF16;
  rules.stream = StreamUnits::kOverRoutedFactor;
  return rules;
}

Rules hf_rules() {
  return {.norm = NormRounding::kTwice,
          .residual = ResidualRule::kRounded,
          .gemm = Gemm::kBf16,
          .frequency = FrequencyOrder::kHuggingFace,
          .rope = RopeRule::kBf16Steps,
          .scores = ScoreRule::kBf16Steps,
          .probs = ProbsRule::kBf16Stored,
          .swiglu = SwigluRule::kBf16Steps,
          .combine = CombineRule::kBf16,
          .head = HeadRule::kBf16};
}

namespace {

QuantizeRule quantize_rule(const tensor_core::Quantiser& stated) {
  using Quantiser = tensor_core::Quantiser;
  QuantizeRule rule{
      .format = stated.power_of_two ? model::ScaleFormat::kUe8m0 : model::ScaleFormat::kFp32,
      .scale = stated.scale == Quantiser::Scale::kDivide ? ScaleFormula::kDivide : ScaleFormula::kTimesReciprocal};
  switch (stated.code) {
    case Quantiser::Code::kDivide: rule.code = CodeFormula::kDivide; break;
    case Quantiser::Code::kTimesReciprocal: rule.code = CodeFormula::kTimesReciprocal; break;
    case Quantiser::Code::kMaxOverAmax: rule.code = CodeFormula::kTimesMaxOverAmax; break;
  }
  return rule;
}

}  // namespace

Rules with_recipe(Rules rules, std::shared_ptr<const tensor_core::Recipe> recipe) {
  if (rules.half == model::DType::kF16) {
    model::throw_input_error("{}: tensor cores in profile fp16 are not modelled; expected mode published or fast",
                             recipe->name);
  }
  tensor_core::linear_path(*recipe, tensor_core::Format::kBf16);
  if (rules.gemm == Gemm::kFp8) {
    tensor_core::linear_path(*recipe, tensor_core::Format::kE4m3);
  }
  if (recipe->quantiser) {
    rules.quantize = quantize_rule(*recipe->quantiser);
  }
  rules.linear_sum = LinearSum::kTensorCore;
  rules.recipe = std::move(recipe);
  return rules;
}

QuantizeRule Rules::quantize_of(const model::Op& linear) const {
  const auto is_plain = [&linear] {
    return linear.expert >= 0 || linear.id.ends_with(".attn.q_a") || linear.id.ends_with(".attn.kv_a");
  };
  QuantizeRule rule = quantize;
  if (ue8m0_reach == Ue8m0Reach::kPlainLinears && !is_plain()) {
    rule.format = model::ScaleFormat::kFp32;
  }
  return rule;
}

namespace {

std::string describe_quantiser(const Rules& rules) {
  std::string text =
      rules.quantize.scale == ScaleFormula::kTimesReciprocal ? "s = amax * FP32(1/448)" : "s = amax / 448";
  if (rules.quantize.format == model::ScaleFormat::kUe8m0) {
    text += ", rounded up to a power of two";
    text += rules.ue8m0_reach == Ue8m0Reach::kPlainLinears ? " (q_a, kv_a and routed experts only)" : "";
  }
  switch (rules.quantize.code) {
    case CodeFormula::kDivide: return text + "; code = E4M3(x / s)";
    case CodeFormula::kTimesReciprocal: return text + "; code = E4M3(x * (1 / s))";
    case CodeFormula::kTimesMaxOverAmax: return text + "; code = E4M3(x * (448 / amax))";
  }
  return text;
}

std::string describe_linear(const Rules& rules) {
  if (rules.partial_sums > 1) {
    return describe_linear(rules_of_part(rules)) +
           fmt::format(", {} parts of K where ranks share it", rules.partial_sums);
  }
  if (rules.linear_sum == LinearSum::kTensorCore) {
    return "tensor core " + tensor_core::describe_recipe(*rules.recipe) + "; BF16 out";
  }
  if (rules.linear_sum == LinearSum::kAnyOrder) {
    Rules ordered = rules;
    ordered.linear_sum = LinearSum::kWrittenOrder;
    return describe_linear(ordered) + ", sums in any order";
  }
  if (rules.gemm == Gemm::kBf16) {
    return "BF16 operands, FP32 sum, BF16 out";
  }
  const bool scales_first = rules.association == ScaleAssociation::kScalesFirst;
  return std::string("FP8 codes, FP32 block dots of 128, ") + (scales_first ? "dot * (sA * sB)" : "(dot * sA) * sB") +
         ", summed in FP32, BF16 out";
}

std::string describe_bf16_logits(const Rules& rules) {
  return rules.linear_sum == LinearSum::kTensorCore ? "BF16 logits (BF16 steps of the tensor core)" : "BF16 logits";
}

std::string describe_combine(const Rules& rules) {
  if (rules.expert_ranks > 1) {
    return fmt::format(
        "FP32, ascending expert id, one BF16(sum) for each of {} ranks, added in FP32, BF16(sum), shared expert last",
        rules.expert_ranks);
  }
  switch (rules.combine) {
    case CombineRule::kFp32: return "FP32, ascending expert id, shared expert last, one rounding";
    case CombineRule::kFp32StoredBf16: return "FP32, ascending expert id, BF16(sum), then the shared expert";
    case CombineRule::kBf16: return "BF16 steps, ascending expert id, shared expert last";
    case CombineRule::kBf16BySlot: return "BF16 steps, in the order of topk_ids, shared expert last";
    case CombineRule::kBf16SharedFirst: return "BF16 steps, the shared expert, then ascending expert id";
    case CombineRule::kBf16BySlotSharedFirst: return "BF16 steps, the shared expert, then in the order of topk_ids";
  }
  return "";
}

std::string describe_attention(const Rules& rules) {
  const std::string scores = rules.scores == ScoreRule::kFp32 ? "FP32 scores" : "scores in BF16 steps";
  switch (rules.probs) {
    case ProbsRule::kBf16BeforeValue: return scores + ", FP32 softmax, BF16(p) times V";
    case ProbsRule::kBf16Stored: return scores + ", FP32 softmax, p stored as BF16";
    case ProbsRule::kFp32: return scores + ", FP32 softmax and p";
    case ProbsRule::kUnnormalised: return scores + ", BF16(exp) times V, divided by the FP32 sum";
    case ProbsRule::kOnline64: return scores + ", online softmax in blocks of 64, BF16(exp) times V";
    case ProbsRule::kOnline128: return scores + ", online softmax in blocks of 128, BF16(exp) times V";
  }
  return scores;
}

// The words of the same rules in BF16, with the name of the format exchanged.
std::map<std::string, std::string> describe_in_fp16(const Rules& rules) {
  Rules in_bf16 = rules;
  in_bf16.half = model::DType::kBF16;
  auto words = describe_rules(in_bf16);
  for (auto& [kind, text] : words) {
    for (size_t at = text.find("BF16"); at != std::string::npos; at = text.find("BF16", at)) {
      text.replace(at, 4, "FP16");
    }
  }
  if (rules.stream == StreamUnits::kOverRoutedFactor) {
    words["residual"] += "; held at 1 / routed_scaling_factor, eps of its norms times the square of that";
  }
  return words;
}

}  // namespace

std::map<std::string, std::string> describe_rules(const Rules& rules) {
  if (rules.half == model::DType::kF16) {
    return describe_in_fp16(rules);
  }
  if (rules.exact()) {
    return {
        {"all", "FP64, nothing rounded; weights FP32(code * scale); inverse frequencies, angles, cos and sin in FP32"}};
  }
  const bool fused = rules.residual == ResidualRule::kFusedPair;
  const std::string order = rules.frequency == FrequencyOrder::kOfficial ? "official order" : "HF order";
  return {
      {"rms_norm", rules.norm == NormRounding::kOnce ? "BF16(x * r * gain)" : "BF16(BF16(x * r) * gain)"},
      {"residual", fused ? "norms read the FP32 sum, BF16(sum) is stored" : "BF16(sum)"},
      {"linear", describe_linear(rules)},
      {"act_quant", rules.gemm == Gemm::kFp8 ? describe_quantiser(rules) : "none"},
      {"rope",
       (rules.rope == RopeRule::kFp32 ? "FP32, one rounding to BF16; frequencies in " : "BF16 steps; frequencies in ") +
           order},
      {"attention", describe_attention(rules)},
      {"router",
       rules.router == RouterRule::kFp32 ? "FP32 logits, scores and weights"
                                         : describe_bf16_logits(rules) + ", scores and weights"},
      {"swiglu", rules.swiglu == SwigluRule::kFp32 ? "BF16(silu(gate) * up)" : "BF16(BF16(silu(gate)) * up)"},
      {"combine", describe_combine(rules)},
      {"cache", rules.cache == CacheRule::kBf16 ? "BF16" : "c in E4M3 with power-of-two scales, k_rope in BF16"},
      {"head", rules.head == HeadRule::kFp32 ? "FP32 logits" : describe_bf16_logits(rules)},
  };
}

}  // namespace reference
