// Faults in the residual stream, the embedding and the head.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// left * a + right * b in the format of the right result.
FaultyOp adding(double a, double b) {
  return [a, b](const OpCall& call) {
    const auto left = model::to_double(call.inputs[0]);
    const auto right = model::to_double(call.inputs[1]);
    return edited(reference::run_op(call), [&](Values& sum) {
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = a * left[i] + b * right[i];
      }
    });
  };
}

// The head's FP32 results, cut off and stored in BF16.
TensorView stored_truncated(const TensorView& logits, const OpCall&) {
  auto values = model::to_double(logits);
  for (double& value : values) {
    value = truncated_to_bf16(value);
  }
  return from_values(values, logits.shape, logits.dtype == model::DType::kF64 ? logits.dtype : model::DType::kBF16);
}

TensorView with_embedding_as_head(const OpCall& call) {
  ChangedWeights changed(call.weights);
  changed.exchange(call.op.weights[0], call.weights.weight("model.embed_tokens.weight"));
  return run_with(call, changed);
}

}  // namespace

std::vector<Fault> stream_faults() {
  std::vector<Fault> faults;
  faults.push_back(
      make_fault("bb-47",
                 "the layer input is divided by the routed factor in a dense layer after the first",
                 "layer.1.attn_residual",
                 on_ragged(),
                 [](const OpCall& call) { return adding(1, 1 / call.config().routed_scaling_factor)(call); }));
  faults.push_back(make_fault("h-14",
                              "each of two vocabulary shards yields its slice of the row",
                              "embed",
                              on_nano(),
                              with_output([](const TensorView& rows, const OpCall& call) {
                                const auto hidden = static_cast<size_t>(rows.row_len());
                                const auto tokens = call.inputs[0].codes<int32_t>();
                                const int64_t half = call.config().vocab_size / 2;
                                return edited(rows, [&](Values& values) {
                                  for (size_t i = 0; i < values.size(); ++i) {
                                    const size_t owner = tokens[i / hidden] < half ? 0 : 1;
                                    values[i] = i % hidden / (hidden / 2) == owner ? values[i] : 0;
                                  }
                                });
                              })));
  faults.push_back(make_fault("k-86",
                              "the embedding is multiplied by the root of the hidden size",
                              "embed",
                              on_nano(),
                              with_output([](const TensorView& rows, const OpCall&) {
                                return scaled(rows, std::sqrt(static_cast<double>(rows.row_len())));
                              })));
  faults.push_back(make_fault("k-87",
                              "a token gets the row of the next id",
                              "embed",
                              on_nano(),
                              with_input(0, [](const TensorView& tokens, const OpCall& call) {
                                std::vector<int32_t> ids;
                                for (const int32_t id : tokens.codes<int32_t>()) {
                                  ids.push_back((id + 1) % static_cast<int32_t>(call.config().vocab_size));
                                }
                                return model::make_tensor(tokens.dtype, tokens.shape, ids);
                              })));
  faults.push_back(
      make_fault("k-88", "the layer input is added twice", "layer.*.attn_residual", on_nano(), adding(1, 2)));
  faults.push_back(
      make_fault("k-89", "the layer input is not added", "layer.*.attn_residual", on_nano(), adding(1, 0)));
  faults.push_back(
      make_fault("k-90", "the stream is not added to the MLP's output", "layer.*.output", on_nano(), adding(0, 1)));
  faults.push_back(
      make_fault("k-91", "the sum is cut off to BF16", "layer.*.attn_residual", on_nano(), [](const OpCall& call) {
        const auto left = model::to_double(call.inputs[0]);
        const auto right = model::to_double(call.inputs[1]);
        return edited(reference::run_op(call), [&](Values& sum) {
          for (size_t i = 0; i < sum.size(); ++i) {
            sum[i] = truncated_to_bf16(left[i] + right[i]);
          }
        });
      }));
  faults.push_back(make_fault("k-92", "the embedding table is the head", "logits", on_nano(), with_embedding_as_head));
  faults.push_back(
      make_fault("k-93", "logits are cut off to BF16", "logits", on_nano(), with_output(stored_truncated)));
  faults.push_back(make_fault("k-94",
                              "logits stand one vocabulary row too far",
                              "logits",
                              on_nano(),
                              with_output([](const TensorView& logits, const OpCall&) {
                                return columns_from(logits, [](int64_t c) { return std::max<int64_t>(c - 1, 0); });
                              })));
  return faults;
}

}  // namespace tools::faults
