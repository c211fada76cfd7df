#include "reference/ops/absorbed.hpp"

#include <type_traits>

#include "reference/matmul.hpp"
#include "reference/ops/latent_rows.hpp"
#include "reference/ops/weighted_rows.hpp"
#include "reference/tokens.hpp"
#include "reference/value_weights.hpp"
#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

// Rows [first, first + count) of W_kvb as the absorbed form uses them. [count, kv_lora]
template <typename T>
std::vector<T> kv_b_rows(const OpCall& call, const WeightMatrix& kv_b, int64_t first, int64_t count) {
  std::vector<T> rows;
  std::vector<float> row(static_cast<size_t>(kv_b.in_dim()));
  for (int64_t r = first; r < first + count; ++r) {
    call.rules.exact() ? kv_b.row(r, row) : kv_b.bf16_row(r, row);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

}  // namespace

model::TensorView query_latent(const OpCall& call) {
  const auto& c = call.config();
  const WeightMatrix kv_b(call.weights, call.op.weights[0]);
  const int64_t tokens = call.inputs[0].num_rows();
  const int64_t heads = c.num_attention_heads;
  const int64_t head_rows = c.qk_nope_head_dim + c.v_head_dim;
  if (call.flops != nullptr) {
    *call.flops += 2 * tokens * heads * c.qk_nope_head_dim * c.kv_lora_rank;
  }
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto q = load<T>(call.inputs[0]);
    std::vector<T> y(static_cast<size_t>(tokens * heads * c.kv_lora_rank));
    parallel_for(heads, call.num_threads, [&](int64_t head) {
      const auto w_uk = kv_b_rows<T>(call, kv_b, head * head_rows, c.qk_nope_head_dim);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t row = t * heads + head;
        const std::span<const T> q_nope(q.data() + row * c.qk_head_dim(), static_cast<size_t>(c.qk_nope_head_dim));
        weighted_rows<T>(
            q_nope,
            w_uk.data(),
            c.kv_lora_rank,
            std::span(y).subspan(static_cast<size_t>(row * c.kv_lora_rank), static_cast<size_t>(c.kv_lora_rank)));
      }
    });
    return store<T>({tokens, heads, c.kv_lora_rank}, std::move(y), model::DType::kBF16);
  });
}

model::TensorView output_latent(const OpCall& call) {
  const auto& c = call.config();
  const auto places = token_places(call.workload);
  const int64_t heads = c.num_attention_heads;
  const int64_t max_keys = call.inputs[0].shape.back();
  if (call.flops != nullptr) {
    *call.flops += 2 * call.workload.num_visible_pairs() * heads * c.kv_lora_rank;
  }
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto probs = load<T>(call.inputs[0]);
    const auto cache = latent_rows<T>(call);
    if constexpr (std::is_same_v<T, float>) {
      round_weights(call.rules.probs, places, heads, max_keys, probs);
    }
    std::vector<T> y(places.size() * static_cast<size_t>(heads * c.kv_lora_rank));
    parallel_for(static_cast<int64_t>(places.size()) * heads, call.num_threads, [&](int64_t row) {
      const TokenPlace& place = places[static_cast<size_t>(row / heads)];
      const std::span<const T> p(probs.data() + row * max_keys, static_cast<size_t>(place.num_visible()));
      weighted_rows<T>(
          p,
          cache.data() + place.first_key_row * c.latent_dim(),
          c.latent_dim(),
          std::span(y).subspan(static_cast<size_t>(row * c.kv_lora_rank), static_cast<size_t>(c.kv_lora_rank)));
    });
    return store<T>({static_cast<int64_t>(places.size()), heads, c.kv_lora_rank}, std::move(y), model::DType::kBF16);
  });
}

model::TensorView context_from_latent(const OpCall& call) {
  const auto& c = call.config();
  const WeightMatrix kv_b(call.weights, call.op.weights[0]);
  const int64_t tokens = call.inputs[0].num_rows();
  const int64_t heads = c.num_attention_heads;
  const int64_t head_rows = c.qk_nope_head_dim + c.v_head_dim;
  if (call.flops != nullptr) {
    *call.flops += 2 * tokens * heads * c.kv_lora_rank * c.v_head_dim;
  }
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto o_latent = load<T>(call.inputs[0]);
    std::vector<T> y(static_cast<size_t>(tokens * heads * c.v_head_dim));
    parallel_for(heads, call.num_threads, [&](int64_t head) {
      const auto w_uv = kv_b_rows<T>(call, kv_b, head * head_rows + c.qk_nope_head_dim, c.v_head_dim);
      for (int64_t t = 0; t < tokens; ++t) {
        const std::span<const T> latent(o_latent.data() + (t * heads + head) * c.kv_lora_rank,
                                        static_cast<size_t>(c.kv_lora_rank));
        for (int64_t v = 0; v < c.v_head_dim; ++v) {
          y[static_cast<size_t>((t * heads + head) * c.v_head_dim + v)] =
              dot_in_order<T>(latent, std::span<const T>(w_uv.data() + v * c.kv_lora_rank, latent.size()));
        }
      }
    });
    return store<T>({tokens, heads * c.v_head_dim}, std::move(y), model::DType::kBF16);
  });
}

}  // namespace reference
