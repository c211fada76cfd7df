#include "reference/ops/attention.hpp"

#include <algorithm>
#include <type_traits>

#include "reference/matmul.hpp"
#include "reference/numerics/functions.hpp"
#include "reference/ops/absorbed.hpp"
#include "reference/ops/latent_rows.hpp"
#include "reference/ops/weighted_rows.hpp"
#include "reference/rope.hpp"
#include "reference/tokens.hpp"
#include "reference/value_weights.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

// Keys of one head as rows [keys, key_len]: [k_nope | k_rope] or, absorbed, the cache row itself.
template <typename T>
std::vector<T> expanded_keys(const model::ModelConfig& c,
                             const std::vector<T>& kv_b,
                             const std::vector<T>& cache,
                             int64_t head) {
  const int64_t kv_row = c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim);
  const int64_t num_keys = static_cast<int64_t>(cache.size()) / c.latent_dim();
  std::vector<T> keys;
  keys.reserve(static_cast<size_t>(num_keys * c.qk_head_dim()));
  for (int64_t key = 0; key < num_keys; ++key) {
    const auto nope = kv_b.begin() + key * kv_row + head * (c.qk_nope_head_dim + c.v_head_dim);
    const auto rope = cache.begin() + key * c.latent_dim() + c.kv_lora_rank;
    keys.insert(keys.end(), nope, nope + c.qk_nope_head_dim);
    keys.insert(keys.end(), rope, rope + c.qk_rope_head_dim);
  }
  return keys;
}

// out[r] = dot_in_order(x, row r); row r starts at rows + r * stride.
template <typename T>
void dots_of_rows(std::span<const T> x, const T* rows, int64_t stride, std::span<T> out) {
  if constexpr (std::is_same_v<T, float>) {
    simd::kernels().dots(
        x.data(), rows, stride, static_cast<int64_t>(out.size()), static_cast<int64_t>(x.size()), out.data());
  } else {
    for (size_t r = 0; r < out.size(); ++r) {
      out[r] = dot_in_order<T>(x, std::span<const T>(rows + static_cast<int64_t>(r) * stride, x.size()));
    }
  }
}

// Scaled scores of one token and head over its visible keys.
template <typename T>
class Scores {
 public:
  explicit Scores(const OpCall& call)
      : call_(call), c_(call.config()), scale_(static_cast<T>(softmax_scale(call.config()))) {
    absorbed_ = call.inputs.size() == 3;
    query_ = load<T>(call.inputs[0]);
    query_rope_ = load<T>(call.inputs[1]);
    cache_ = latent_rows<T>(call);
    if (!absorbed_) {
      kv_b_ = load<T>(call.inputs[2]);
    }
  }

  // Must be called before scores of that head are asked for. [keys, key_len], empty in the absorbed form.
  [[nodiscard]] std::vector<T> keys_of_head(int64_t head) const {
    return absorbed_ ? std::vector<T>() : expanded_keys(c_, kv_b_, cache_, head);
  }

  [[nodiscard]] std::vector<T> of(int64_t token,
                                  const TokenPlace& place,
                                  int64_t head,
                                  const std::vector<T>& keys) const {
    const auto rope_len = static_cast<size_t>(c_.qk_rope_head_dim);
    const std::span<const T> q_rope(query_rope_.data() + (token * c_.num_attention_heads + head) * c_.qk_rope_head_dim,
                                    rope_len);
    const int64_t main_len = absorbed_ ? c_.kv_lora_rank : c_.qk_nope_head_dim;
    const int64_t query_stride = absorbed_ ? c_.kv_lora_rank : c_.qk_head_dim();
    const std::span<const T> q_main(query_.data() + (token * c_.num_attention_heads + head) * query_stride,
                                    static_cast<size_t>(main_len));
    std::vector<T> whole(q_main.begin(), q_main.end());
    whole.insert(whole.end(), q_rope.begin(), q_rope.end());

    std::vector<T> scores(static_cast<size_t>(place.num_visible()));
    if (absorbed_) {
      const T* cached = cache_.data() + place.first_key_row * c_.latent_dim();
      std::vector<T> rope_scores(scores.size());
      dots_of_rows<T>(q_main, cached, c_.latent_dim(), scores);
      dots_of_rows<T>(q_rope, cached + main_len, c_.latent_dim(), rope_scores);
      for (size_t key = 0; key < scores.size(); ++key) {
        scores[key] = step(scores[key]) + step(rope_scores[key]);
      }
    } else {
      dots_of_rows<T>(whole, keys.data() + place.first_key_row * c_.qk_head_dim(), c_.qk_head_dim(), scores);
    }
    for (T& score : scores) {
      score = step(step(score) * scale_);
    }
    return scores;
  }

 private:
  // A rounding on the way to the score, where the rule has one.
  [[nodiscard]] T step(T value) const {
    if constexpr (std::is_same_v<T, float>) {
      return call_.rules.scores == ScoreRule::kBf16Steps ? round_to_half(call_.rules.half, value) : value;
    } else {
      return value;
    }
  }

  const OpCall& call_;
  const model::ModelConfig& c_;
  T scale_;
  bool absorbed_ = false;
  std::vector<T> query_;
  std::vector<T> query_rope_;
  std::vector<T> kv_b_;
  std::vector<T> cache_;
};

// Calls visit(token, head, scores) for every token and head; heads in parallel.
template <typename T, typename Visit>
void for_each_score_row(const OpCall& call, const Visit& visit) {
  const Scores<T> scores(call);
  const auto places = token_places(call.workload);
  parallel_for(call.config().num_attention_heads, call.num_threads, [&](int64_t head) {
    const auto keys = scores.keys_of_head(head);
    for (size_t token = 0; token < places.size(); ++token) {
      visit(static_cast<int64_t>(token), head, scores.of(static_cast<int64_t>(token), places[token], head, keys));
    }
  });
}

// Replaces scores by exp(score - max) and returns {max, sum}.
template <typename T>
std::pair<T, T> exponentiate(std::vector<T>& scores) {
  const T largest = *std::max_element(scores.begin(), scores.end());
  for (T& score : scores) {
    score -= largest;
  }
  if constexpr (std::is_same_v<T, float>) {
    simd::kernels().exp(scores.data(), static_cast<int64_t>(scores.size()), scores.data());
  } else {
    std::transform(scores.begin(), scores.end(), scores.begin(), exp_f64);
  }
  return {largest, sum_in_order<T>(scores)};
}

template <typename T>
std::vector<T> expanded_context(const OpCall& call) {
  const auto& c = call.config();
  auto probs = load<T>(call.inputs[0]);
  const auto kv_b = load<T>(call.inputs[1]);
  const auto places = token_places(call.workload);
  const int64_t heads = c.num_attention_heads;
  const int64_t max_keys = call.inputs[0].shape.back();
  if constexpr (std::is_same_v<T, float>) {
    round_weights(call.rules, places, heads, max_keys, probs);
  }
  const int64_t kv_row = call.inputs[1].row_len();
  std::vector<T> context(places.size() * static_cast<size_t>(heads * c.v_head_dim));
  parallel_for(static_cast<int64_t>(places.size()) * heads, call.num_threads, [&](int64_t row) {
    const TokenPlace& place = places[static_cast<size_t>(row / heads)];
    const std::span<const T> p(probs.data() + row * max_keys, static_cast<size_t>(place.num_visible()));
    const int64_t first_value = row % heads * (c.qk_nope_head_dim + c.v_head_dim) + c.qk_nope_head_dim;
    weighted_rows<T>(
        p,
        kv_b.data() + place.first_key_row * kv_row + first_value,
        kv_row,
        std::span(context).subspan(static_cast<size_t>(row * c.v_head_dim), static_cast<size_t>(c.v_head_dim)));
  });
  return context;
}

int64_t visible_pairs_flops(const OpCall& call, int64_t len) {
  return 2 * call.workload.num_visible_pairs() * call.config().num_attention_heads * len;
}

void count_score_flops(const OpCall& call) {
  if (call.flops != nullptr) {
    *call.flops +=
        visible_pairs_flops(call, call.inputs.size() == 3 ? call.config().latent_dim() : call.config().qk_head_dim());
  }
}

}  // namespace

model::TensorView attention_probs(const OpCall& call) {
  const int64_t tokens = call.workload.num_tokens();
  const int64_t heads = call.config().num_attention_heads;
  const int64_t max_keys = call.workload.max_keys();
  count_score_flops(call);
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    std::vector<T> probs(static_cast<size_t>(tokens * heads * max_keys));
    for_each_score_row<T>(call, [&](int64_t token, int64_t head, std::vector<T> scores) {
      const T sum = exponentiate(scores).second;
      const auto row = probs.begin() + (token * heads + head) * max_keys;
      std::transform(scores.begin(), scores.end(), row, [sum](T e) { return e / sum; });
    });
    const auto dtype = call.rules.probs == ProbsRule::kBf16Stored ? call.rules.half : model::DType::kF32;
    return store<T>({tokens, heads, max_keys}, std::move(probs), dtype);
  });
}

model::TensorView attention_lse(const OpCall& call) {
  const int64_t tokens = call.workload.num_tokens();
  const int64_t heads = call.config().num_attention_heads;
  count_score_flops(call);
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    std::vector<T> lse(static_cast<size_t>(tokens * heads));
    for_each_score_row<T>(call, [&](int64_t token, int64_t head, std::vector<T> scores) {
      const auto [largest, sum] = exponentiate(scores);
      lse[static_cast<size_t>(token * heads + head)] = largest + static_cast<T>(log_f64(sum));
    });
    return store<T>({tokens, heads}, std::move(lse), model::DType::kF32);
  });
}

model::TensorView attention_context(const OpCall& call) {
  if (call.inputs.size() == 1) {
    return context_from_latent(call);
  }
  if (call.flops != nullptr) {
    *call.flops += visible_pairs_flops(call, call.config().v_head_dim);
  }
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    return store<T>({call.workload.num_tokens(), call.config().num_attention_heads * call.config().v_head_dim},
                    expanded_context<T>(call),
                    call.rules.half);
  });
}

}  // namespace reference
