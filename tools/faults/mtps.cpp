// Faults in the multi-token-prediction layers.
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// Fed tokens of depth k stand one place earlier than the main model's: row i of the result has token i in place of token i + 1
// wherever `is_wrong` says so. What the first row should have is not among them; it keeps its own.
FaultyOp with_tokens(std::function<bool(int64_t row)> is_wrong) {
  return with_input(0, [is_wrong = std::move(is_wrong)](const TensorView& tokens, const OpCall&) {
    return rows_from(tokens, [&](int64_t row) { return row > 0 && is_wrong(row) ? row - 1 : row; });
  });
}

TensorView exchanged_inputs(const OpCall& call) {
  OpCall changed = call;
  std::swap(changed.inputs[0], changed.inputs[1]);
  return reference::run_op(changed);
}

// The input as it is, where a norm should be.
TensorView without_norm(const OpCall& call) {
  return edited(reference::run_op(call), [&](Values& values) { values = model::to_double(call.inputs[0]); });
}

FaultyOp with_other_weight(const std::string& name) {
  return [name](const OpCall& call) {
    ChangedWeights changed(call.weights);
    changed.exchange(call.op.weights[0], call.weights.weight(name));
    return run_with(call, changed);
  };
}

// The state is the stream of another layer.
FaultyOp with_state(const Memory& memory, const std::string& id) {
  return with_input(0, [state = memory.at(id)](const TensorView& right, const OpCall&) {
    return edited(right, [&](Values& values) { values = model::to_double(state); });
  });
}

}  // namespace

std::vector<Fault> mtp_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault(
      "bb-73", "the MTP layer is fed the main model's tokens", "mtp.*.embed", on_nano_mtp(), with_tokens([](int64_t) {
        return true;
      })));
  faults.push_back(make_fault("bb-74",
                              "the MTP layer's copy of the head was never filled in",
                              "mtp.*.logits",
                              on_nano_mtp(),
                              with_weight([](const TensorView& head) { return scaled(head, 0); })));
  faults.push_back(make_fault(
      "bb-75", "the norm before the MTP layer's head is missing", "mtp.*.norm", on_nano_mtp(), without_norm));
  faults.push_back(make_fault("bb-77",
                              "at the end of each chunk of four the next token is not known",
                              "mtp.*.embed",
                              on_nano_mtp(),
                              with_tokens([](int64_t row) { return row % 4 == 3; })));
  faults.push_back(make_fault_with_memory(
      "h-20",
      "the MTP layer reads the stream of an early layer",
      "mtp.0.hnorm",
      on_nano_mtp(),
      "layer.1.output",
      [](const OpCall& call, const Memory& memory) { return with_state(memory, "layer.1.output")(call); }));
  faults.push_back(make_fault(
      "k-95", "state and embedding are joined in the other order", "mtp.*.eh_proj", on_nano_mtp(), exchanged_inputs));
  faults.push_back(make_fault_with_memory("k-96",
                                          "the MTP layer reads the state before the final norm",
                                          "mtp.0.hnorm",
                                          on_nano_mtp(),
                                          "layer.*.output",
                                          [](const OpCall& call, const Memory& memory) {
                                            const int64_t last = call.config().num_hidden_layers - 1;
                                            return with_state(memory,
                                                              "layer." + std::to_string(last) + ".output")(call);
                                          }));
  faults.push_back(make_fault("k-97",
                              "the MTP layer's head uses the main model's norm",
                              "mtp.*.norm",
                              on_nano_mtp(),
                              with_other_weight("model.norm.weight")));
  faults.push_back(make_fault("k-98", "the state's norm is missing", "mtp.*.hnorm", on_nano_mtp(), without_norm));
  return faults;
}

}  // namespace tools::faults
