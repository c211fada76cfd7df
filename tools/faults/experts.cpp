// Faults in the experts: their rows, their activation, and how their outputs are put together.
#include <algorithm>
#include <cmath>

#include "reference/numerics/functions.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// SwiGLU by another function of gate and up.
FaultyOp activating(std::function<double(double gate, double up)> function) {
  return [function = std::move(function)](const OpCall& call) {
    const auto up = model::to_double(call.inputs[1]);
    return edited(call.inputs[0], [&](Values& gate) {
      for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] = function(gate[i], up[i]);
      }
    });
  };
}

double silu(double x) {
  return reference::silu_f64(x);
}

// Weighted sum with the weight changed: weight_of(weights of the token, slot, expert).
FaultyOp with_slot_weights(
    std::function<double(std::span<const double> weights, size_t slot, int64_t expert, const OpCall&)> weight_of) {
  return [weight_of = std::move(weight_of)](const OpCall& call) {
    OpCall changed = call;
    const auto ids = call.inputs[0].codes<int32_t>();
    const auto k = static_cast<size_t>(call.inputs[0].row_len());
    const auto right = model::to_double(call.inputs[1]);
    changed.inputs[1] = edited(call.inputs[1], [&](Values& weights) {
      for (size_t i = 0; i < weights.size(); ++i) {
        const auto token = std::span<const double>(right).subspan(i / k * k, k);
        weights[i] = weight_of(token, i % k, ids[i], call);
      }
    });
    return reference::run_op(changed);
  };
}

// Every expert works with the weight of the expert beside it.
FaultyOp with_neighbours_weight() {
  return [](const OpCall& call) {
    const std::string& name = call.op.weights[0];
    const std::string own = ".experts." + std::to_string(call.op.expert) + ".";
    const size_t at = name.find(own);
    const std::string other = std::string(name).replace(
        at,
        own.size(),
        ".experts." + std::to_string(std::min(call.op.expert ^ 1, call.config().n_routed_experts - 1)) + ".");
    ChangedWeights changed(call.weights);
    changed.exchange(name, call.weights.weight(other));
    if (call.weights.weight(name).dtype == model::DType::kF8E4M3) {
      changed.exchange(name + "_scale_inv", call.weights.weight(other + "_scale_inv"));
    }
    return run_with(call, changed);
  };
}

}  // namespace

std::vector<Fault> expert_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault(
      "bb-55",
      "the row offset of an expert's tokens wraps, here after 8 rows",
      "layer.*.moe.expert.*.gate",
      {"synthetic:nano", prompt(12)},
      with_input(0, [](const TensorView& x, const OpCall&) { return rows_from(x, [](int64_t t) { return t % 8; }); })));
  faults.push_back(
      make_fault("bb-61",
                 "two ranks both add the shared expert",
                 "layer.*.ffn",
                 on_notv3(),
                 with_input(1, [](const TensorView& shared, const OpCall&) { return scaled(shared, 2); })));
  faults.push_back(make_fault("bb-64",
                              "a slot that another rank serves reads the last expert's rows",
                              "layer.*.moe.routed",
                              on_nano(),
                              [](const OpCall& call) {
                                // Of two ranks, this one owns the lower half of the experts; the other's come out as its last.
                                std::vector<TensorView> outputs(call.expert_outputs.begin(), call.expert_outputs.end());
                                const size_t half = outputs.size() / 2;
                                TensorView last;
                                for (size_t e = 0; e < half; ++e) {
                                  last = outputs[e].bytes.empty() ? last : outputs[e];
                                }
                                for (size_t e = half; e < outputs.size(); ++e) {
                                  auto& rows = outputs[e];
                                  if (!rows.bytes.empty() && !last.bytes.empty()) {
                                    const auto source = model::to_double(last);
                                    rows = edited(rows, [&](Values& values) {
                                      for (size_t i = 0; i < values.size(); ++i) {
                                        values[i] = source[i % source.size()];
                                      }
                                    });
                                  }
                                }
                                OpCall changed = call;
                                changed.expert_outputs = outputs;
                                return reference::run_op(changed);
                              }));
  faults.push_back(make_fault(
      "bb-65",
      "experts are served in slices of 6, the incomplete last slice is not",
      "layer.*.moe.routed",
      on_nano(),
      with_slot_weights([](std::span<const double> weights, size_t slot, int64_t expert, const OpCall& call) {
        return expert < call.config().n_routed_experts / 6 * 6 ? weights[slot] : 0;
      })));
  faults.push_back(make_fault("k-37",
                              "each expert gathers the row after its token's",
                              "layer.*.moe.expert.*.up",
                              on_nano(),
                              with_input(0, [](const TensorView& x, const OpCall&) {
                                return rows_from(x, [&](int64_t t) { return std::min(t + 1, x.num_rows() - 1); });
                              })));
  faults.push_back(make_fault("k-38",
                              "experts 2i and 2i+1 are exchanged in the down projection",
                              "layer.1.moe.expert.*[0-9]",
                              on_nano(),
                              with_neighbours_weight()));
  faults.push_back(make_fault(
      "k-39", "gate and up are exchanged", "layer.*.moe.shared.act", on_nano(), activating([](double gate, double up) {
        return silu(up) * gate;
      })));
  faults.push_back(make_fault(
      "k-40", "GELU (tanh form) in place of SiLU", "layer.*.mlp.act", on_nano(), activating([](double gate, double up) {
        return 0.5 * gate * (1 + std::tanh(0.7978845608 * (gate + 0.044715 * gate * gate * gate))) * up;
      })));
  faults.push_back(make_fault(
      "k-41", "ReLU in place of SiLU", "layer.*.moe.expert.*.act", on_nano(), activating([](double gate, double up) {
        return std::max(gate, 0.0) * up;
      })));
  faults.push_back(make_fault(
      "k-42", "the activation is cut off to BF16", "layer.*.mlp.act", on_nano(), activating([](double gate, double up) {
        return truncated_to_bf16(silu(gate) * up);
      })));
  faults.push_back(
      make_fault("k-43",
                 "the weight of the slot before is used",
                 "layer.*.moe.routed",
                 on_nano(),
                 with_slot_weights([](std::span<const double> weights, size_t slot, int64_t, const OpCall&) {
                   return weights[(slot + weights.size() - 1) % weights.size()];
                 })));
  faults.push_back(
      make_fault("k-44",
                 "the expert of the last slot is left out",
                 "layer.*.moe.routed",
                 on_nano(),
                 with_slot_weights([](std::span<const double> weights, size_t slot, int64_t, const OpCall&) {
                   return slot + 1 < weights.size() ? weights[slot] : 0;
                 })));
  faults.push_back(
      make_fault("k-45",
                 "routed experts are added without their weights",
                 "layer.*.moe.routed",
                 on_nano(),
                 with_slot_weights([](std::span<const double>, size_t, int64_t, const OpCall&) { return 1; })));
  faults.push_back(
      make_fault("k-46", "the shared expert is missing", "layer.*.ffn", on_notv3(), [](const OpCall& call) {
        OpCall changed = call;
        changed.inputs.resize(1);
        return reference::run_op(changed);
      }));
  faults.push_back(make_fault("k-47",
                              "the shared expert is multiplied by the routed factor",
                              "layer.*.ffn",
                              on_notv3(),
                              with_input(1, [](const TensorView& shared, const OpCall& call) {
                                return scaled(shared, call.config().routed_scaling_factor);
                              })));
  return faults;
}

}  // namespace tools::faults
