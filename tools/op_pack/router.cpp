// router: logits, scores, choice and weights; the choice comes with the sets that a legal one lies between.
#include <cmath>

#include "reference/values.hpp"
#include "tools/op_pack/admissible.hpp"
#include "tools/op_pack/kinds.hpp"

namespace tools::op_pack {

using model::OpKind;

OpPack make_router(Bench& bench) {
  const auto& c = bench.config();
  const int64_t tokens = bench.shape["tokens"];
  const std::vector<std::string> bias_names =
      c.has_router_bias() ? std::vector<std::string>{"bias"} : std::vector<std::string>{};
  if (bench.checkpoint != nullptr) {
    if (!c.is_moe_layer(bench.request.layer)) {
      model::throw_input_error("--layer {}: a dense layer, which has no router", bench.request.layer);
    }
    const std::string gate = "model.layers." + std::to_string(bench.request.layer) + ".mlp.gate.";
    bench.weights.put("weight", bench.checkpoint->weight(gate + "weight"));
    if (!bias_names.empty()) {
      bench.weights.put("bias", bench.checkpoint->weight(gate + "e_score_correction_bias"));
    }
  } else {
    const double std = 1 / std::sqrt(static_cast<double>(c.hidden_size));
    bench.weights.put("weight", bench.samples.bf16_weight("weight", {c.n_routed_experts, c.hidden_size}, 0, std));
    bench.weights.put(
        "bias",
        model::make_tensor(
            model::DType::kF32, {c.n_routed_experts}, bench.samples.uniform("bias", c.n_routed_experts, -0.1, 0.1)));
  }
  const auto x = bench.samples.activations("x", {tokens, c.hidden_size});
  const Value logits =
      bench.run({.id = "logits", .kind = OpKind::kRouterLogits, .weights = {"weight"}}, {given_value(x)});
  const Value scores = bench.run({.id = "scores", .kind = OpKind::kRouterScores}, {logits});
  std::vector<Value> chooses_from{scores};
  if (c.n_group > 1) {
    const model::Op op{.id = "groups", .kind = OpKind::kRouterGroups, .weights = bias_names};
    chooses_from.push_back(given_value(bench.bits(op, {scores})));
  }
  const auto ids = bench.bits({.id = "ids", .kind = OpKind::kRouterExperts, .weights = bias_names}, chooses_from);
  const Value weights = bench.run({.id = "weights", .kind = OpKind::kRouterWeights}, {scores, given_value(ids)});
  const auto bias =
      bias_names.empty() ? reference::Reused<float>() : reference::load<float>(bench.weights.weight("bias"));
  auto masks = admissible_sets(c, bench.rules, reference::rounded(scores.estimate), bias);
  OpPack pack{
      {},
      {{"x", x}, {"weight", bench.weights.weight("weight")}},
      {{"", ids, {}}, {"weights", weights.stored, weights.estimate}, {"scores", scores.stored, scores.estimate}}};
  if (!bias_names.empty()) {
    pack.inputs.emplace_back("bias", bench.weights.weight("bias"));
  }
  const model::Shape shape{tokens, c.n_routed_experts};
  pack.inputs.emplace_back("may_be_chosen", model::make_tensor(model::DType::kU8, shape, std::move(masks.may)));
  pack.inputs.emplace_back("must_be_chosen", model::make_tensor(model::DType::kU8, shape, std::move(masks.must)));
  pack.facts["routed_scaling_factor"] = c.routed_scaling_factor;
  return pack;
}

}  // namespace tools::op_pack
