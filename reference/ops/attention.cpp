#include "reference/ops/attention.hpp"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "reference/matmul.hpp"
#include "reference/numerics/functions.hpp"
#include "reference/ops/absorbed.hpp"
#include "reference/ops/latent_rows.hpp"
#include "reference/ops/weighted_rows.hpp"
#include "reference/panel_matmul.hpp"
#include "reference/rope.hpp"
#include "reference/tokens.hpp"
#include "reference/value_weights.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

// Elements [first, first + count) of a tensor.
template <typename T>
void load_elements(const model::TensorView& tensor, int64_t first, std::span<T> out) {
  const auto element_bytes = static_cast<size_t>(model::dtype_bytes(tensor.dtype));
  load_codes<T>(
      tensor.dtype, tensor.bytes.subspan(static_cast<size_t>(first) * element_bytes, out.size() * element_bytes), out);
}

// What kv_b makes of the cached latents, head by head: all heads at once are 64 KB a position in DeepSeek-V3.
template <typename T>
class ExpandedHeads {
 public:
  // `kv_b` [keys, heads * (nope + v)], or an empty view: then from the cache rows [keys, kv_lora + rope] and the call's matrix.
  ExpandedHeads(const OpCall& call, const model::TensorView& kv_b, const Reused<T>& cache)
      : call_(call), kv_b_(kv_b), num_keys_(static_cast<int64_t>(cache.size()) / call.config().latent_dim()) {
    if (!kv_b.bytes.empty()) {
      num_keys_ = kv_b.num_rows();
    } else if constexpr (std::is_same_v<T, float>) {
      latents_.emplace(latents(cache));
    }
  }

  [[nodiscard]] int64_t num_keys() const { return num_keys_; }

  // Elements [first, first + count) of a head's part of every key; that of key i from out + i * stride on.
  void read(int64_t head, int64_t first, int64_t count, T* out, int64_t stride) const {
    const auto& c = call_.config();
    const int64_t column = head * (c.qk_nope_head_dim + c.v_head_dim) + first;
    if (latents_) {
      expand(column, count, out, stride);
      return;
    }
    for (int64_t key = 0; key < num_keys_; ++key) {
      load_elements<T>(
          kv_b_, key * kv_b_.row_len() + column, std::span<T>(out + key * stride, static_cast<size_t>(count)));
    }
  }

 private:
  [[nodiscard]] bool is_quantised() const { return call_.matrix->is_fp8() && call_.rules.gemm == Gemm::kFp8; }

  // The linear's x, as op kv_b has it.
  [[nodiscard]] BlockedRows latents(const Reused<float>& cache) const {
    const auto& c = call_.config();
    BlockedRows x(num_keys_, c.kv_lora_rank);
    for (int64_t key = 0; key < num_keys_; ++key) {
      const auto row =
          std::span(cache).subspan(static_cast<size_t>(key * c.latent_dim()), static_cast<size_t>(c.kv_lora_rank));
      is_quantised() ? x.set_quantised(key, row, call_.rules.quantize_of(call_.op)) : x.set(key, row);
    }
    return x;
  }

  void expand(int64_t first_row, int64_t count, float* out, int64_t stride) const {
    const WeightForm form = is_quantised() ? WeightForm::kCodes : half_form(call_.rules.half);
    panel_matmul(
        *latents_, *call_.matrix, {.first = first_row, .count = count}, form, call_.rules.association, 1, out, stride);
    for (int64_t key = 0; key < num_keys_; ++key) {
      round_all_to_half(call_.rules.half, std::span<float>(out + key * stride, static_cast<size_t>(count)));
    }
  }
  void expand(int64_t, int64_t, double*, int64_t) const { CHECK(false); }

  const OpCall& call_;
  const model::TensorView& kv_b_;
  int64_t num_keys_;
  std::optional<BlockedRows> latents_;
};

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
      expanded_.emplace(call, call.inputs[2], cache_);
    }
  }

  // Keys of one head as rows [k_nope | k_rope], which `of` asks for. [keys, nope + rope]; empty in the absorbed form.
  [[nodiscard]] Reused<T> keys_of_head(int64_t head) const {
    if (absorbed_) {
      return {};
    }
    const int64_t key_len = c_.qk_head_dim();
    Reused<T> keys(static_cast<size_t>(expanded_->num_keys() * key_len));
    expanded_->read(head, 0, c_.qk_nope_head_dim, keys.data(), key_len);
    for (int64_t key = 0; key < expanded_->num_keys(); ++key) {
      std::copy_n(cache_.data() + key * c_.latent_dim() + c_.kv_lora_rank,
                  c_.qk_rope_head_dim,
                  keys.data() + key * key_len + c_.qk_nope_head_dim);
    }
    return keys;
  }

  [[nodiscard]] Reused<T> of(int64_t token, const TokenPlace& place, int64_t head, const Reused<T>& keys) const {
    const auto rope_len = static_cast<size_t>(c_.qk_rope_head_dim);
    const std::span<const T> q_rope(query_rope_.data() + (token * c_.num_attention_heads + head) * c_.qk_rope_head_dim,
                                    rope_len);
    const int64_t main_len = absorbed_ ? c_.kv_lora_rank : c_.qk_nope_head_dim;
    const int64_t query_stride = absorbed_ ? c_.kv_lora_rank : c_.qk_head_dim();
    const std::span<const T> q_main(query_.data() + (token * c_.num_attention_heads + head) * query_stride,
                                    static_cast<size_t>(main_len));
    Reused<T> scores(static_cast<size_t>(place.num_visible()));
    if (absorbed_) {
      const T* cached = cache_.data() + place.first_key_row * c_.latent_dim();
      Reused<T> rope_scores(scores.size());
      dots_of_rows<T>(q_main, cached, c_.latent_dim(), scores);
      dots_of_rows<T>(q_rope, cached + main_len, c_.latent_dim(), rope_scores);
      for (size_t key = 0; key < scores.size(); ++key) {
        scores[key] = step(scores[key]) + step(rope_scores[key]);
      }
    } else {
      Reused<T> whole(q_main.begin(), q_main.end());
      whole.insert(whole.end(), q_rope.begin(), q_rope.end());
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
  Reused<T> query_;
  Reused<T> query_rope_;
  Reused<T> cache_;
  std::optional<ExpandedHeads<T>> expanded_;
};

// Calls visit(token, head, scores) for every token and head; heads in parallel.
template <typename T, typename Visit>
void for_each_score_row(const OpCall& call, const Visit& visit) {
  const Scores<T> scores(call);
  const auto places = token_places(call.workload);
  const int64_t num_macs =
      call.workload.num_visible_pairs() * call.config().num_attention_heads * call.config().qk_head_dim();
  parallel_for(call.config().num_attention_heads, threads_for(num_macs, call.num_threads), [&](int64_t head) {
    const auto keys = scores.keys_of_head(head);
    for (size_t token = 0; token < places.size(); ++token) {
      visit(static_cast<int64_t>(token), head, scores.of(static_cast<int64_t>(token), places[token], head, keys));
    }
  });
}

// Replaces scores by exp(score - max) and returns {max, sum}.
template <typename T>
std::pair<T, T> exponentiate(Reused<T>& scores) {
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
Reused<T> expanded_context(const OpCall& call) {
  const auto& c = call.config();
  const model::TensorView& probs = call.inputs[0];
  const model::TensorView& kv_b = call.inputs[1];
  const auto places = token_places(call.workload);
  const int64_t heads = c.num_attention_heads;
  const int64_t max_keys = probs.shape.back();
  const ExpandedHeads<T> expanded(call, kv_b, kv_b.bytes.empty() ? latent_rows<T>(call) : Reused<T>());
  Reused<T> context(places.size() * static_cast<size_t>(heads * c.v_head_dim));
  const int64_t num_macs = call.workload.num_visible_pairs() * heads * c.v_head_dim;
  parallel_for(heads, threads_for(num_macs, call.num_threads), [&](int64_t head) {
    Reused<T> values(static_cast<size_t>(expanded.num_keys() * c.v_head_dim));
    expanded.read(head, c.qk_nope_head_dim, c.v_head_dim, values.data(), c.v_head_dim);
    for (size_t token = 0; token < places.size(); ++token) {
      const TokenPlace& place = places[token];
      const int64_t row = static_cast<int64_t>(token) * heads + head;
      Reused<T> p(static_cast<size_t>(place.num_visible()));
      load_elements<T>(probs, row * max_keys, p);
      if constexpr (std::is_same_v<T, float>) {
        round_weights(call.rules, p);
      }
      weighted_rows<T>(
          p,
          values.data() + place.first_key_row * c.v_head_dim,
          c.v_head_dim,
          std::span(context).subspan(static_cast<size_t>(row * c.v_head_dim), static_cast<size_t>(c.v_head_dim)));
    }
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

bool is_kv_b(const model::Op& op) {
  return op.kind == model::OpKind::kLinear && op.inputs.front().starts_with("cache.");
}

bool expands_by_head(const Rules& rules, const model::ModelConfig& config) {
  return !rules.exact() && rules.linear_sum == LinearSum::kWrittenOrder &&
         config.qk_nope_head_dim % simd::kPanelRows == 0 && config.v_head_dim % simd::kPanelRows == 0;
}

void attention_probs(const OpCall& call, model::TensorView& result) {
  const int64_t tokens = call.workload.num_tokens();
  const int64_t heads = call.config().num_attention_heads;
  const int64_t max_keys = call.workload.max_keys();
  count_score_flops(call);
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    Reused<T> probs(static_cast<size_t>(tokens * heads * max_keys));
    for_each_score_row<T>(call, [&](int64_t token, int64_t head, Reused<T> scores) {
      const T sum = exponentiate(scores).second;
      const auto row = probs.begin() + (token * heads + head) * max_keys;
      const auto end = std::transform(scores.begin(), scores.end(), row, [sum](T e) { return e / sum; });
      std::fill(end, row + max_keys, T(0));
    });
    const auto dtype = call.rules.probs == ProbsRule::kBf16Stored ? call.rules.half : model::DType::kF32;
    store(result, {tokens, heads, max_keys}, std::move(probs), dtype);
  });
}

void attention_lse(const OpCall& call, model::TensorView& result) {
  const int64_t tokens = call.workload.num_tokens();
  const int64_t heads = call.config().num_attention_heads;
  count_score_flops(call);
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    Reused<T> lse(static_cast<size_t>(tokens * heads));
    for_each_score_row<T>(call, [&](int64_t token, int64_t head, Reused<T> scores) {
      const auto [largest, sum] = exponentiate(scores);
      lse[static_cast<size_t>(token * heads + head)] = largest + static_cast<T>(log_f64(sum));
    });
    store(result, {tokens, heads}, std::move(lse), model::DType::kF32);
  });
}

void attention_context(const OpCall& call, model::TensorView& result) {
  if (call.inputs.size() == 1) {
    return context_from_latent(call, result);
  }
  if (call.flops != nullptr) {
    *call.flops += visible_pairs_flops(call, call.config().v_head_dim);
  }
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    store(result,
          {call.workload.num_tokens(), call.config().num_attention_heads * call.config().v_head_dim},
          expanded_context<T>(call),
          call.rules.half);
  });
}

}  // namespace reference
