#include "tools/legal/attention.hpp"

#include <algorithm>
#include <cmath>

#include "reference/rope.hpp"
#include "reference/tokens.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace tools::legal {
namespace {

using model::TensorView;
using reference::load;
using reference::OpCall;
using reference::store;

// Elements [first, first + count) of a flat tensor.
std::span<const float> part(std::span<const float> values, int64_t first, int64_t count) {
  return std::span<const float>(values).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

std::vector<float> joined(std::span<const float> a, std::span<const float> b) {
  std::vector<float> result(a.begin(), a.end());
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

// Row `row` of kv_b's weight in BF16.
std::vector<float> weight_row(const reference::WeightMatrix& weight, int64_t row) {
  std::vector<float> values(static_cast<size_t>(weight.in_dim()));
  weight.bf16_row(row, values);
  return values;
}

// Visible probabilities of a row in BF16.
std::vector<float> bf16_probs(std::span<const float> probs, int64_t first, int64_t count) {
  const auto row = part(probs, first, count);
  std::vector<float> rounded(row.size());
  std::transform(row.begin(), row.end(), rounded.begin(), reference::round_to_bf16);
  return rounded;
}

int64_t head_rows(const model::ModelConfig& c) {
  return c.qk_nope_head_dim + c.v_head_dim;
}

// visit(row, exps, top, sum) for each token and head: exp(score - top) of the keys that the token sees, and their sum.
template <typename Visit>
void for_each_softmax(const OpCall& call, Order& order, const Visit& visit) {
  const auto& c = call.config();
  const bool absorbed = call.inputs.size() == 3;
  const int64_t heads = c.num_attention_heads;
  const int64_t main_len = absorbed ? c.kv_lora_rank : c.qk_nope_head_dim;
  const int64_t query_stride = absorbed ? c.kv_lora_rank : c.qk_head_dim();
  const auto query = load<float>(call.inputs[0]);
  const auto query_rope = load<float>(call.inputs[1]);
  const auto kv_b = absorbed ? reference::Reused<float>() : load<float>(call.inputs[2]);
  const auto cache = load<float>(call.inputs.back());
  const auto scale = static_cast<float>(reference::softmax_scale(c));
  const auto places = reference::token_places(call.workload);
  for (size_t t = 0; t < places.size(); ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t row = static_cast<int64_t>(t) * heads + head;
      const auto q = joined(part(query, row * query_stride, main_len),
                            part(query_rope, row * c.qk_rope_head_dim, c.qk_rope_head_dim));
      std::vector<float> scores;
      for (int64_t key = 0; key < places[t].num_visible(); ++key) {
        const int64_t place = places[t].first_key_row + key;
        const auto main = absorbed ? part(cache, place * c.latent_dim(), main_len)
                                   : part(kv_b, (place * heads + head) * head_rows(c), main_len);
        const auto k = joined(main, part(cache, place * c.latent_dim() + c.kv_lora_rank, c.qk_rope_head_dim));
        scores.push_back(order.dot(q, k) * scale);
      }
      const float top = *std::max_element(scores.begin(), scores.end());
      for (float& score : scores) {
        score = order.function(std::exp(static_cast<double>(score - top)));
      }
      visit(row, scores, top, order.sum(scores));
    }
  }
}

}  // namespace

TensorView attention_probs(const OpCall& call, Order& order) {
  const int64_t max_keys = call.workload.max_keys();
  const model::Shape shape{call.workload.num_tokens(), call.config().num_attention_heads, max_keys};
  std::vector<float> probs(static_cast<size_t>(model::num_elements(shape)));
  for_each_softmax(call, order, [&](int64_t row, const std::vector<float>& exps, float /*top*/, float sum) {
    for (size_t key = 0; key < exps.size(); ++key) {
      probs[static_cast<size_t>(row * max_keys) + key] = exps[key] / sum;
    }
  });
  return store<float>(shape, std::move(probs), model::DType::kF32);
}

TensorView attention_lse(const OpCall& call, Order& order) {
  const model::Shape shape{call.workload.num_tokens(), call.config().num_attention_heads};
  std::vector<float> lse;
  for_each_softmax(call, order, [&](int64_t /*row*/, const std::vector<float>& /*exps*/, float top, float sum) {
    lse.push_back(top + order.function(std::log(static_cast<double>(sum))));
  });
  return store<float>(shape, std::move(lse), model::DType::kF32);
}

TensorView context(const OpCall& call, Order& order) {
  const auto& c = call.config();
  const int64_t heads = c.num_attention_heads;
  const int64_t max_keys = call.inputs[0].shape.back();
  const auto probs = load<float>(call.inputs[0]);
  const auto kv_b = load<float>(call.inputs[1]);
  const auto places = reference::token_places(call.workload);
  std::vector<float> y;
  for (size_t t = 0; t < places.size(); ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      const auto p = bf16_probs(probs, (static_cast<int64_t>(t) * heads + head) * max_keys, places[t].num_visible());
      for (int64_t v = 0; v < c.v_head_dim; ++v) {
        std::vector<float> column;
        for (int64_t key = 0; key < places[t].num_visible(); ++key) {
          const int64_t row = (places[t].first_key_row + key) * heads + head;
          column.push_back(kv_b[static_cast<size_t>(row * head_rows(c) + c.qk_nope_head_dim + v)]);
        }
        y.push_back(order.dot(p, column));
      }
    }
  }
  return store<float>(
      {static_cast<int64_t>(places.size()), heads * c.v_head_dim}, std::move(y), order.stored(model::DType::kBF16));
}

TensorView output_latent(const OpCall& call, Order& order) {
  const auto& c = call.config();
  const int64_t heads = c.num_attention_heads;
  const int64_t max_keys = call.inputs[0].shape.back();
  const auto probs = load<float>(call.inputs[0]);
  const auto cache = load<float>(call.inputs[1]);
  const auto places = reference::token_places(call.workload);
  std::vector<float> y;
  for (size_t t = 0; t < places.size(); ++t) {
    for (int64_t head = 0; head < heads; ++head) {
      const auto p = bf16_probs(probs, (static_cast<int64_t>(t) * heads + head) * max_keys, places[t].num_visible());
      for (int64_t j = 0; j < c.kv_lora_rank; ++j) {
        std::vector<float> column;
        for (int64_t key = 0; key < places[t].num_visible(); ++key) {
          column.push_back(cache[static_cast<size_t>((places[t].first_key_row + key) * c.latent_dim() + j)]);
        }
        y.push_back(order.dot(p, column));
      }
    }
  }
  return store<float>(
      {static_cast<int64_t>(places.size()), heads, c.kv_lora_rank}, std::move(y), order.stored(model::DType::kBF16));
}

TensorView query_latent(const OpCall& call, Order& order) {
  const auto& c = call.config();
  const reference::WeightMatrix kv_b(call.weights, call.op.weights[0]);
  const auto q = load<float>(call.inputs[0]);
  const int64_t heads = c.num_attention_heads;
  std::vector<std::vector<float>> rows;
  for (int64_t row = 0; row < kv_b.out_dim(); ++row) {
    rows.push_back(weight_row(kv_b, row));
  }
  std::vector<float> y;
  for (int64_t row = 0; row < call.inputs[0].num_rows() * heads; ++row) {
    const int64_t first = row % heads * head_rows(c);
    for (size_t j = 0; j < static_cast<size_t>(c.kv_lora_rank); ++j) {
      std::vector<float> column;
      for (int64_t i = 0; i < c.qk_nope_head_dim; ++i) {
        column.push_back(rows[static_cast<size_t>(first + i)][j]);
      }
      y.push_back(order.dot(part(q, row * c.qk_head_dim(), c.qk_nope_head_dim), column));
    }
  }
  return store<float>(
      {call.inputs[0].num_rows(), heads, c.kv_lora_rank}, std::move(y), order.stored(model::DType::kBF16));
}

TensorView context_from_latent(const OpCall& call, Order& order) {
  const auto& c = call.config();
  const reference::WeightMatrix kv_b(call.weights, call.op.weights[0]);
  const auto latent = load<float>(call.inputs[0]);
  const int64_t heads = c.num_attention_heads;
  const int64_t tokens = call.inputs[0].num_rows();
  std::vector<float> y(static_cast<size_t>(tokens * heads * c.v_head_dim));
  for (int64_t out = 0; out < heads * c.v_head_dim; ++out) {
    const int64_t head = out / c.v_head_dim;
    const auto row = weight_row(kv_b, head * head_rows(c) + c.qk_nope_head_dim + out % c.v_head_dim);
    for (int64_t t = 0; t < tokens; ++t) {
      y[static_cast<size_t>(t * heads * c.v_head_dim + out)] =
          order.dot(part(latent, (t * heads + head) * c.kv_lora_rank, c.kv_lora_rank), row);
    }
  }
  return store<float>({tokens, heads * c.v_head_dim}, std::move(y), order.stored(model::DType::kBF16));
}

}  // namespace tools::legal
