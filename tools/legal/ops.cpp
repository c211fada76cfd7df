#include "tools/legal/ops.hpp"

#include <algorithm>
#include <cmath>

#include "reference/numerics/reduce.hpp"
#include "reference/rope.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"
#include "tools/faults/fp8_linear.hpp"
#include "tools/legal/attention.hpp"

namespace tools::legal {
namespace {

using model::OpKind;
using model::TensorView;
using reference::load;
using reference::OpCall;
using reference::store;

constexpr auto kBlock = static_cast<size_t>(reference::kBlockLen);

TensorView linear(const OpCall& call, Order& order, model::DType dtype) {
  const reference::WeightMatrix weight(call.weights, call.op.weights[0]);
  const auto rows = faults::activation_rows(call, weight.in_dim());
  const bool is_fp8 = weight.is_fp8() && call.rules.gemm == reference::Gemm::kFp8;
  const bool scales_first = order.coin();
  const bool is_head = call.op.kind == OpKind::kHead || call.op.kind == OpKind::kRouterLogits;
  std::vector<reference::QuantizedRow> quantised;
  for (int64_t m = 0; is_fp8 && m < rows.num_rows; ++m) {
    quantised.push_back(reference::quantize_row(call.rules.quantize_of(call.op), rows.row(m)));
  }
  std::vector<float> y(static_cast<size_t>(rows.num_rows * weight.out_dim()));
  std::vector<float> w(static_cast<size_t>(weight.in_dim()));
  for (int64_t n = 0; n < weight.out_dim(); ++n) {
    is_fp8 ? weight.code_row(n, w) : is_head ? weight.row(n, w) : weight.bf16_row(n, w);
    for (int64_t m = 0; m < rows.num_rows; ++m) {
      float& result = y[static_cast<size_t>(m * weight.out_dim() + n)];
      if (!is_fp8) {
        result = order.dot(rows.row(m), w);
        continue;
      }
      const auto& row = quantised[static_cast<size_t>(m)];
      std::vector<float> blocks;
      for (size_t begin = 0; begin < w.size(); begin += kBlock) {
        const size_t len = std::min(kBlock, w.size() - begin);
        const float dot = order.dot(std::span<const float>(row.codes).subspan(begin, len),
                                    std::span<const float>(w).subspan(begin, len));
        const float x_scale = row.scales[begin / kBlock];
        const float w_scale = weight.scale(n, static_cast<int64_t>(begin / kBlock));
        blocks.push_back(scales_first ? dot * (x_scale * w_scale) : dot * x_scale * w_scale);
      }
      result = order.sum(std::move(blocks));
    }
  }
  return store<float>({rows.num_rows, weight.out_dim()}, std::move(y), order.stored(dtype));
}

TensorView rms_norm(const OpCall& call, Order& order) {
  const bool after_attention = call.inputs.size() == 3;
  auto x = load<float>(call.inputs[after_attention ? 1 : 0]);
  if (after_attention) {
    const auto input = load<float>(call.inputs[2]);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] += reference::round_to_bf16(input[i]);
    }
  }
  const auto gain = load<float>(call.weights.weight(call.op.weights[0]));
  const auto row_len = static_cast<size_t>(call.inputs[0].row_len());
  std::vector<float> y;
  for (size_t begin = 0; begin < x.size(); begin += row_len) {
    const auto row = std::span<const float>(x).subspan(begin, gain.size());
    const float mean = order.sum_of_squares(row) / static_cast<float>(gain.size());
    const float inverse =
        order.function(1 / std::sqrt(static_cast<double>(mean + static_cast<float>(call.config().rms_norm_eps))));
    for (size_t i = 0; i < gain.size(); ++i) {
      y.push_back(row[i] * inverse * gain[i]);
    }
  }
  return store<float>(
      {call.inputs[0].num_rows(), static_cast<int64_t>(gain.size())}, std::move(y), order.stored(model::DType::kBF16));
}

TensorView swiglu(const OpCall& call, Order& order) {
  auto gate = load<float>(call.inputs[0]);
  const auto up = load<float>(call.inputs[1]);
  for (size_t i = 0; i < gate.size(); ++i) {
    const float e = order.function(std::exp(-static_cast<double>(gate[i])));
    gate[i] = gate[i] / (1 + e) * up[i];
  }
  return store<float>(call.inputs[0].shape, std::move(gate), order.stored(model::DType::kBF16));
}

TensorView softmax_scores(const OpCall& call, Order& order) {
  auto scores = load<float>(call.inputs[0]);
  const auto num_experts = static_cast<size_t>(call.inputs[0].row_len());
  for (size_t begin = 0; begin < scores.size(); begin += num_experts) {
    const auto row = std::span<float>(scores).subspan(begin, num_experts);
    const float top = *std::ranges::max_element(row);
    for (float& score : row) {
      score = order.function(std::exp(static_cast<double>(score - top)));
    }
    const float sum = order.sum({row.begin(), row.end()});
    for (float& score : row) {
      score /= sum;
    }
  }
  return store<float>(call.inputs[0].shape, std::move(scores), model::DType::kF32);
}

TensorView sigmoid_scores(const OpCall& call, Order& order) {
  auto scores = load<float>(call.inputs[0]);
  for (float& score : scores) {
    score = 1 / (1 + order.function(std::exp(-static_cast<double>(score))));
  }
  return store<float>(call.inputs[0].shape, std::move(scores), model::DType::kF32);
}

TensorView router_weights(const OpCall& call, Order& order) {
  const auto scores = load<float>(call.inputs[0]);
  const auto ids = call.inputs[1].codes<int32_t>();
  const auto k = static_cast<size_t>(call.inputs[1].row_len());
  const auto num_experts = static_cast<size_t>(call.inputs[0].row_len());
  std::vector<float> weights;
  for (size_t t = 0; t < ids.size() / k; ++t) {
    std::vector<float> chosen;
    for (size_t slot = 0; slot < k; ++slot) {
      chosen.push_back(scores[t * num_experts + static_cast<size_t>(ids[t * k + slot])]);
    }
    const float sum = call.config().norm_topk_prob ? order.sum(chosen) + 1e-20F : 1;
    for (const float score : chosen) {
      weights.push_back(score / sum * static_cast<float>(call.config().routed_scaling_factor));
    }
  }
  return store<float>(call.inputs[1].shape, std::move(weights), model::DType::kF32);
}

TensorView combine(const OpCall& call, Order& order) {
  const auto ids = call.inputs[0].codes<int32_t>();
  const auto weights = load<float>(call.inputs[1]);
  const auto k = static_cast<size_t>(call.inputs[0].row_len());
  const auto hidden = static_cast<size_t>(call.config().hidden_size);
  std::vector<reference::Reused<float>> outputs;
  for (const auto& output : call.expert_outputs) {
    outputs.push_back(output.bytes.empty() ? reference::Reused<float>() : load<float>(output));
  }
  std::vector<size_t> next_row(outputs.size());
  std::vector<float> y;
  for (size_t t = 0; t < ids.size() / k; ++t) {
    for (size_t i = 0; i < hidden; ++i) {
      std::vector<float> column;
      for (size_t slot = 0; slot < k; ++slot) {
        const auto expert = static_cast<size_t>(ids[t * k + slot]);
        column.push_back(outputs[expert][next_row[expert] * hidden + i]);
      }
      y.push_back(order.dot(column, std::span<const float>(weights).subspan(t * k, k)));
    }
    for (size_t slot = 0; slot < k; ++slot) {
      ++next_row[static_cast<size_t>(ids[t * k + slot])];
    }
  }
  return store<float>({call.inputs[0].num_rows(), call.config().hidden_size}, std::move(y), model::DType::kF32);
}

// The FP32 sum of two tensors, the second rounded to BF16 first where it is a layer's input; or the one that is there.
TensorView sum_of_two(const OpCall& call, bool round_second, model::DType dtype) {
  auto sum = load<float>(call.inputs[0]);
  const auto second =
      call.inputs.size() == 2 ? load<float>(call.inputs[1]) : reference::Reused<float>(sum.size(), 0.0f);
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] += round_second ? reference::round_to_bf16(second[i]) : second[i];
  }
  return store<float>(call.inputs[0].shape, std::move(sum), dtype);
}

// Vectors with fused products; cos and sin are the tables'.
TensorView rotate(const OpCall& call, bool is_query, const Order& order) {
  const auto& c = call.config();
  const auto x = load<float>(call.inputs[0]);
  const auto frequencies = reference::inverse_frequencies(c, call.rules.frequency);
  const auto places = reference::token_places(call.workload);
  const int64_t num_vectors = is_query ? c.num_attention_heads : 1;
  const int64_t depth = call.op.layer - c.num_hidden_layers;
  std::vector<float> y;
  for (size_t t = 0; t < places.size(); ++t) {
    const auto turns = reference::rotations(c, frequencies, places[t].position + (depth < 0 ? 0 : 1 + depth));
    for (int64_t v = 0; v < num_vectors; ++v) {
      const int64_t first = is_query ? c.qk_nope_head_dim + v * c.qk_head_dim() : c.kv_lora_rank;
      const float* pair = x.data() + static_cast<int64_t>(t) * call.inputs[0].row_len() + first;
      for (const auto& turn : turns) {
        y.push_back(std::fma(pair[0], turn.cos, -(pair[1] * turn.sin)));
        y.push_back(std::fma(pair[0], turn.sin, pair[1] * turn.cos));
        pair += 2;
      }
    }
  }
  const auto tokens = static_cast<int64_t>(places.size());
  const auto shape = is_query ? model::Shape{tokens, c.num_attention_heads, c.qk_rope_head_dim}
                              : model::Shape{tokens, c.qk_rope_head_dim};
  return store<float>(shape, std::move(y), order.stored(model::DType::kBF16));
}

}  // namespace

std::optional<TensorView> run_in_order(const OpCall& call, Order& order) {
  switch (call.op.kind) {
    case OpKind::kLinear:
    case OpKind::kMtpConcat: return linear(call, order, model::DType::kBF16);
    case OpKind::kHead:
    case OpKind::kRouterLogits: return linear(call, order, model::DType::kF32);
    case OpKind::kRmsNorm: return rms_norm(call, order);
    case OpKind::kSwiglu: return swiglu(call, order);
    case OpKind::kRouterScores:
      return call.config().scoring_func == model::ScoringFunction::kSigmoid ? sigmoid_scores(call, order)
                                                                            : softmax_scores(call, order);
    case OpKind::kRouterWeights: return router_weights(call, order);
    case OpKind::kCombine: return combine(call, order);
    case OpKind::kRotateQuery: return rotate(call, true, order);
    case OpKind::kRotateKey: return rotate(call, false, order);
    case OpKind::kAttentionProbs: return attention_probs(call, order);
    case OpKind::kAttentionLse: return attention_lse(call, order);
    case OpKind::kResidualAdd: return sum_of_two(call, true, order.stored(model::DType::kBF16));
    case OpKind::kMoeOutput: return sum_of_two(call, false, order.stored(model::DType::kBF16));
    case OpKind::kAttentionContext:
      return call.inputs.size() == 1 ? context_from_latent(call, order) : context(call, order);
    case OpKind::kQueryLatent: return query_latent(call, order);
    case OpKind::kOutputLatent: return output_latent(call, order);
    default: return std::nullopt;
  }
}

}  // namespace tools::legal
