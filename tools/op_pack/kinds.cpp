#include "tools/op_pack/kinds.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace tools::op_pack {

const std::vector<Kind>& all_kinds() {
  using model::OpKind;
  static const std::vector<Kind> kinds{
      {"linear",
       "y = x W^T",
       {{"m", "8", "rows of x"},
        {"k", "7168", "columns of x", false, true},
        {"n", "1536", "columns of y", false, true}},
       {OpKind::kLinear},
       "attn.q_a",
       "m=4,k=512,n=256",
       make_linear},
      {"rms_norm",
       "RMSNorm with gain, of x or of x + residual",
       {{"tokens", "16", "rows"},
        {"hidden", "7168", "columns", false, true},
        {"residual", "0", "1: the sum x + residual is normed, and is an output too"}},
       {OpKind::kRmsNorm, OpKind::kResidualAdd},
       "attn_norm",
       "tokens=4,hidden=512,residual=1",
       make_rms_norm},
      {"mla_prefill",
       "attention core over expanded keys and values, causal, one sequence",
       {{"tokens", "32", "new tokens"},
        {"cached", "32", "keys before them"},
        {"heads", "16", "heads (128 in DeepSeek-V3)", false, true},
        {"nope", "128", "dimensions without rotation", false, true},
        {"rope", "64", "rotated dimensions", false, true},
        {"v", "128", "dimensions of a value", false, true}},
       {OpKind::kAttentionProbs, OpKind::kAttentionLse, OpKind::kAttentionContext},
       "",
       "tokens=5,cached=3,heads=2",
       make_mla_prefill},
      {"mla_decode",
       "attention core over the latent cache (absorbed form), one new token a sequence",
       {{"keys", "200:77", "keys of each sequence, the new token's included", true},
        {"heads", "16", "heads (128 in DeepSeek-V3)", false, true},
        {"kv_lora", "512", "dimensions of the latent", false, true},
        {"rope", "64", "rotated dimensions", false, true}},
       {OpKind::kAttentionProbs, OpKind::kAttentionLse, OpKind::kOutputLatent},
       "",
       "keys=70:9,heads=2",
       make_mla_decode},
      {"router",
       "scores, chosen experts and their weights",
       {{"tokens", "16", "tokens"},
        {"hidden", "7168", "columns of x", false, true},
        {"experts", "256", "experts", false, true},
        {"groups", "8", "groups of experts", false, true},
        {"topk_groups", "4", "groups that are kept", false, true},
        {"topk", "8", "experts of a token", false, true}},
       {OpKind::kRouterLogits, OpKind::kRouterScores, OpKind::kRouterWeights},
       "",
       "tokens=4,hidden=512,experts=64,topk=4",
       make_router},
      {"grouped_linear",
       "y = x W^T, each run of rows with its own expert's W",
       {{"rows", "3:0:5:1", "rows of each expert", true},
        {"k", "7168", "columns of x", false, true},
        {"n", "512", "columns of y", false, true}},
       {OpKind::kLinear},
       "moe.expert.*.gate",
       "rows=3:0:5,k=512,n=256",
       make_grouped_linear},
      {"swiglu_quant",
       "silu(gate) * up, then its 1x128 FP8 codes and scales",
       {{"tokens", "16", "rows"}, {"dim", "2048", "columns"}},
       {OpKind::kSwiglu, OpKind::kLinear},
       "",
       "tokens=4,dim=512",
       make_swiglu_quant},
      {"combine",
       "weighted sum of the routed experts' rows, plus the shared expert's",
       {{"tokens", "16", "tokens"},
        {"hidden", "7168", "columns", false, true},
        {"experts", "256", "experts", false, true},
        {"topk", "8", "experts of a token", false, true},
        {"shared", "1", "0: without the shared expert"}},
       {OpKind::kCombine, OpKind::kMoeOutput},
       "",
       "tokens=4,hidden=256,experts=16,topk=4",
       make_combine},
      {"act_quant",
       "1x128 FP8 codes and scales of activations",
       {{"tokens", "16", "rows"}, {"dim", "7168", "columns"}},
       {OpKind::kLinear},
       "",
       "tokens=4,dim=512",
       make_act_quant},
  };
  return kinds;
}

const Kind& find_kind(const std::string& name) {
  const auto& kinds = all_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.name == name; });
  if (found == kinds.end()) {
    std::vector<std::string_view> names;
    std::transform(kinds.begin(), kinds.end(), std::back_inserter(names), [](const Kind& kind) { return kind.name; });
    model::throw_input_error("op {}: expected one of {}", name, fmt::join(names, ", "));
  }
  return *found;
}

model::Op checkpoint_op(const Bench& bench, model::OpKind kind, bool grouped) {
  const std::string wanted =
      bench.request.op.empty() ? std::string(find_kind(bench.request.kind).usual_op) : bench.request.op;
  std::vector<std::string> names;
  for (const model::Op& op :
       model::op_list(bench.checkpoint->config(),
                      {.sequences = {{0, 1}}, .num_mtp_layers = bench.checkpoint->config().num_nextn_predict_layers})) {
    if (op.layer != bench.request.layer || op.kind != kind || (op.num_parts > 1) != grouped) {
      continue;
    }
    if (op.id.ends_with("." + wanted)) {
      return op;
    }
    const size_t after_layer = op.id.find('.', op.id.find('.') + 1);
    names.push_back(op.id.substr(after_layer + 1));
  }
  model::throw_input_error("--op {}: layer {} has no such {}; it has {}",
                           wanted,
                           bench.request.layer,
                           bench.request.kind,
                           names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

void put_linear_weight(Bench& bench, const std::string& as, const std::string& name, const model::Shape& shape) {
  const std::string scale_suffix = "_scale_inv";
  if (bench.checkpoint != nullptr) {
    auto weight = bench.checkpoint->weight(name);
    if (weight.dtype == model::DType::kF8E4M3) {
      bench.weights.put(as + scale_suffix, bench.checkpoint->weight(name + scale_suffix));
    }
    bench.weights.put(as, std::move(weight));
    return;
  }
  const double std = 1 / std::sqrt(static_cast<double>(shape[1]));
  if (!bench.rules.exact() && bench.rules.gemm == reference::Gemm::kBf16) {
    bench.weights.put(as, bench.samples.bf16_weight(as, shape, 0, std));
    return;
  }
  bench.weights.put(as, bench.samples.fp8_weight(as, shape));
  bench.weights.put(as + scale_suffix, bench.samples.fp8_scales(as + scale_suffix, shape, std));
}

}  // namespace tools::op_pack
