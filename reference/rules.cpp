#include "reference/rules.hpp"

namespace reference {

Rules exact_rules() {
  return {.arithmetic = Arithmetic::kExact, .gemm = Gemm::kBf16};
}

Rules v32_rules(Gemm gemm, model::ScaleFormat scale_format) {
  return {.gemm = gemm, .quantize = {.format = scale_format}};
}

std::map<std::string, std::string> describe_rules(const Rules& rules) {
  if (rules.exact()) {
    return {{"all", "FP64, nothing rounded; weights FP32(code * scale); inverse frequencies, angles, cos and sin in FP32"}};
  }
  const bool ue8m0 = rules.quantize.format == model::ScaleFormat::kUe8m0;
  const bool times = rules.quantize.scale == ScaleFormula::kTimesReciprocal;
  const bool fused = rules.residual == ResidualRule::kFusedPair;
  return {
      {"rms_norm", rules.norm == NormRounding::kOnce ? "BF16(x * r * gain)" : "BF16(BF16(x * r) * gain)"},
      {"residual", fused ? "norms read the FP32 sum, BF16(sum) is stored" : "BF16(sum)"},
      {"linear", rules.gemm == Gemm::kFp8 ? "FP8 codes, FP32 block dots of 128 times (sA * sB), summed in FP32, BF16 out"
                                          : "BF16 operands, FP32 sum, BF16 out"},
      {"act_quant", std::string(times ? "s = amax * FP32(1/448)" : "s = amax / 448") +
                        (ue8m0 ? ", rounded up to a power of two" : "") +
                        (rules.quantize.code == CodeFormula::kDivide ? "; code = E4M3(x / s)" : "; code = E4M3(x * (1 / s))")},
      {"rope", rules.frequency == FrequencyOrder::kOfficial ? "FP32, one rounding to BF16; frequencies in official order"
                                                            : "FP32, one rounding to BF16; frequencies in HF order"},
      {"attention", rules.probs == ProbsRule::kBf16BeforeValue ? "FP32 scores and softmax, BF16(p) times V"
                                                               : "FP32 scores, softmax and p"},
      {"router", rules.router == RouterRule::kFp32 ? "FP32 logits, scores and weights" : "BF16 logits and scores"},
      {"swiglu", rules.swiglu == SwigluRule::kFp32 ? "BF16(silu(gate) * up)" : "BF16(BF16(silu(gate)) * up)"},
      {"combine", rules.combine == CombineRule::kFp32 ? "FP32, ascending expert id, shared expert last, one rounding"
                                                      : "BF16 steps, ascending expert id, shared expert last"},
      {"head", rules.head == HeadRule::kFp32 ? "FP32 logits" : "BF16 logits"},
  };
}

}  // namespace reference
