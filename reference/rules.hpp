// Numerics modes as data: for each kind of op, which of the published rules it follows. A mode is a value of `Rules`; a rule
// variant is a copy of it with one field changed. Docs: docs/numerics.md.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "model/config.hpp"
#include "model/dtype.hpp"
#include "model/op_list.hpp"

namespace reference::tensor_core {
struct Recipe;
}  // namespace reference::tensor_core

namespace reference {

// What the numbers are between roundings. kExact: FP64 everywhere and nothing is rounded.
enum class Arithmetic { kFp32, kExact };

// RMSNorm: when the product with the gain is rounded to BF16.
enum class NormRounding {
  kOnce,   // BF16(x * r * gain): DeepSeek-V3.2
  kTwice,  // BF16(BF16(x * r) * gain): HF, vLLM, torch 2.4
};

// The residual stream.
enum class ResidualRule {
  kFusedPair,  // norms see the unrounded FP32 sum, BF16(sum) is stored: DeepSeek-V3.2
  kRounded,    // every sum is rounded to BF16 first: DeepSeek-V3, HF
};

// What multiplies what in a linear whose weight is FP8. Weights in BF16 always take the BF16 path.
enum class Gemm { kFp8, kBf16 };

// The scale of a 1x128 block of activations, from amax = max(|x|, 1e-4).
enum class ScaleFormula {
  kTimesReciprocal,  // amax * FP32(1/448): DeepSeek-V3.2
  kDivide,           // amax / 448: DeepSeek-V3
};

// The code of one activation.
enum class CodeFormula {
  kDivide,            // x / s
  kTimesReciprocal,   // x * (1 / s): DeepGEMM
  kTimesMaxOverAmax,  // x * (448 / amax): per-token-group kernels of vLLM and SGLang
};

struct QuantizeRule {
  model::ScaleFormat format = model::ScaleFormat::kFp32;  // kUe8m0: the scale is rounded up to a power of two
  ScaleFormula scale = ScaleFormula::kTimesReciprocal;
  CodeFormula code = CodeFormula::kDivide;

  bool operator==(const QuantizeRule&) const = default;
};

// Which linears take the checkpoint's UE8M0 activation scales; the others use FP32 ones.
enum class Ue8m0Reach {
  kEveryLinear,   // DeepSeek-V3.2
  kPlainLinears,  // q_a, kv_a and the routed experts: DeepSeek-V3's parallel linears drop the argument
};

// How a block's dot meets its two scales.
enum class ScaleAssociation {
  kScalesFirst,      // dot * (sA * sB): DeepSeek-V3.2, DeepGEMM
  kActivationFirst,  // (dot * sA) * sB: DeepSeek-V3
};

// Attention scores before the softmax.
enum class ScoreRule {
  kFp32,       // q . k and its product with the scale stay FP32: DeepSeek-V3.2
  kBf16Steps,  // BF16(BF16(q . k) * scale); absorbed: the two dots are rounded and added in BF16 first: DeepSeek-V3, HF
};

// Attention probabilities, from an FP32 softmax.
enum class ProbsRule {
  kBf16BeforeValue,  // FP32, then BF16(p) times V: DeepSeek-V3.2, DeepSeek-V3
  kBf16Stored,       // the same product, but BF16(p) is what is stored: HF
  kFp32,             // p stays FP32
  kUnnormalised,     // BF16(exp(s - max)) times V, divided by the FP32 sum afterwards
  kOnline64,         // the same, key blocks of 64, each with the largest score seen so far: FlashMLA, FlashAttention
  kOnline128,        // the same, blocks of 128
};

// Rotation of queries and keys.
enum class RopeRule {
  kFp32,       // FP32, one rounding to BF16: DeepSeek
  kBf16Steps,  // BF16 cos and sin, both products and the sum rounded to BF16: HF
};

// silu(gate) * up.
enum class SwigluRule {
  kFp32,       // one rounding at the end: DeepSeek-V3.2
  kBf16Steps,  // BF16(BF16(silu(gate)) * up): DeepSeek-V3, HF
};

// The weighted sum of the routed experts, ascending expert id.
enum class CombineRule {
  kFp32,            // FP32 sum, shared expert added before the only rounding: DeepSeek-V3.2
  kFp32StoredBf16,  // FP32 sum, BF16(sum) before the shared expert is added: fused MoE kernels
  kBf16,            // product and running sum rounded to BF16: DeepSeek-V3, HF
  kBf16BySlot,      // the same in the order of topk_ids
  // The same two on top of the shared expert. For judging only: the executor keeps the two sums apart, as ops, and adds it last.
  kBf16SharedFirst,
  kBf16BySlotSharedFirst,
};

inline bool rounds_each_step(CombineRule rule) {
  return rule != CombineRule::kFp32 && rule != CombineRule::kFp32StoredBf16;
}
inline bool sums_by_slot(CombineRule rule) {
  return rule == CombineRule::kBf16BySlot || rule == CombineRule::kBf16BySlotSharedFirst;
}
inline bool takes_shared_first(CombineRule rule) {
  return rule == CombineRule::kBf16SharedFirst || rule == CombineRule::kBf16BySlotSharedFirst;
}

// What the latent cache holds.
enum class CacheRule {
  kBf16,  // c and k_rope as computed
  kFp8,  // c in E4M3 with one power-of-two scale for 128 values, dequantised to BF16; k_rope in BF16: FlashMLA's 656-byte form
};

enum class HeadRule {
  kFp32,  // FP32 logits: DeepSeek-V3.2
  kBf16,  // BF16 logits: DeepSeek-V3, HF
};

enum class RouterRule {
  kFp32,  // FP32 logits, scores and weights: DeepSeek-V3.2, HF
  kBf16,  // BF16 logits; sigmoid scores and every step of the weights BF16 (softmax: FP32 until the weights are stored): DeepSeek-V3
};

// Order of operations in the YaRN inverse frequencies (FP32): last bits differ.
enum class FrequencyOrder { kOfficial, kHuggingFace };

// How the products of a linear are added up in FP32 modes; kTensorCore: those of router and head too where they are stored in BF16.
enum class LinearSum {
  kWrittenOrder,  // FP32 in the order of docs/numerics.md, section 2
  kAnyOrder,      // FP32 in an order that suits this machine: bound to the written one by docs/bounds.md alone
  kTensorCore,    // the steps of Rules::recipe
};

// The units in which the residual stream is held (residual_stream.hpp).
enum class StreamUnits {
  kModel,
  kOverRoutedFactor,  // divided by routed_scaling_factor, with the epsilon of the norms that read it to match
};

struct Rules {
  Arithmetic arithmetic = Arithmetic::kFp32;
  // The 16-bit format, kBF16 or kF16: of everything that these rules call BF16, 16-bit weights included.
  model::DType half = model::DType::kBF16;
  StreamUnits stream = StreamUnits::kModel;
  NormRounding norm = NormRounding::kOnce;
  ResidualRule residual = ResidualRule::kFusedPair;
  Gemm gemm = Gemm::kFp8;
  QuantizeRule quantize = {};
  Ue8m0Reach ue8m0_reach = Ue8m0Reach::kEveryLinear;
  ScaleAssociation association = ScaleAssociation::kScalesFirst;
  FrequencyOrder frequency = FrequencyOrder::kOfficial;
  RopeRule rope = RopeRule::kFp32;
  ScoreRule scores = ScoreRule::kFp32;
  CacheRule cache = CacheRule::kBf16;
  ProbsRule probs = ProbsRule::kBf16BeforeValue;
  RouterRule router = RouterRule::kFp32;
  SwigluRule swiglu = SwigluRule::kFp32;
  CombineRule combine = CombineRule::kFp32;
  HeadRule head = HeadRule::kFp32;
  LinearSum linear_sum = LinearSum::kWrittenOrder;
  std::shared_ptr<const tensor_core::Recipe> recipe =
      {};  // of kTensorCore; its promotion takes the place of `association`
  // Linears whose input is cut over tensor-parallel ranks (o_proj, the down projections of dense layers and the shared expert) are sums
  // of as many parts, each of a share of K and rounded to BF16; they are added in FP32 in the order of ranks and rounded once. 1: one sum.
  int64_t partial_sums = 1;
  // Ranks that share a layer's experts and add up what theirs give before it travels: as many sums of consecutive experts, each FP32 in
  // ascending id and rounded to BF16; these are added in FP32 in the order of ranks and rounded once. 1: every output travels by itself.
  // For the FP32 rules of `combine`.
  int64_t expert_ranks = 1;

  [[nodiscard]] bool exact() const { return arithmetic == Arithmetic::kExact; }
  // The quantiser of one linear.
  [[nodiscard]] QuantizeRule quantize_of(const model::Op& linear) const;
  bool operator==(const Rules&) const = default;
};

// Mode `exact`: FP64 on weights FP32(code * scale), no activation quantisation; inverse frequencies, angles, cos and sin in FP32.
Rules exact_rules();

// Mode `published`, profile `v32`: DeepSeek-V3.2-Exp inference/model.py @3b99a53, expanded or absorbed attention by phase.
// The checkpoint decides gemm and scale format unless a flag overrides them.
Rules v32_rules(Gemm gemm, model::ScaleFormat scale_format);

// Profile `v3-demo`: DeepSeek-V3 inference/model.py @9b4e978 under its pinned torch 2.4: BF16 gate, scores, SwiGLU steps, expert sum
// and logits; norms rounded twice.
Rules v3_demo_rules(Gemm gemm, model::ScaleFormat scale_format);

// Profile `hf`: transformers 5.24 DeepseekV3ForCausalLM in bfloat16, eager attention and experts; FP8 weights dequantised to BF16.
Rules hf_rules();

// Mode `published`, profile `fp16`: v32 with FP16 in place of BF16, and the residual stream divided by routed_scaling_factor so that it
// fits. No published engine computes exactly this; what ours has in FP16 is held against it.
Rules fp16_rules(Gemm gemm, model::ScaleFormat scale_format);

// The rules with linears as these tensor cores compute them, and the quantiser that the recipe states, if it does. Throws InputError if they have no unit for the operands,
// and for FP16, for which no linear of a recipe is written.
Rules with_recipe(Rules rules, std::shared_ptr<const tensor_core::Recipe> recipe);

// Op kind (or stage) -> the rule in words, for manifests and `dsv3-golden show`.
std::map<std::string, std::string> describe_rules(const Rules& rules);

}  // namespace reference
