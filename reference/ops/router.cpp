#include "reference/ops/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "reference/numerics/functions.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/residual_stream.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

template <typename T>
T sigmoid(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return sigmoid_f32(x);
  } else {
    return sigmoid_f64(x);
  }
}

template <typename T>
Reused<T> softmax(std::span<const T> logits) {
  const T top = *std::max_element(logits.begin(), logits.end());
  Reused<T> result;
  result.reserve(logits.size());
  for (const T logit : logits) {
    if constexpr (std::is_same_v<T, float>) {
      result.push_back(exp_f32(logit - top));
    } else {
      result.push_back(exp_f64(logit - top));
    }
  }
  const T sum = sum_in_order<T>(result);
  for (T& value : result) {
    value /= sum;
  }
  return result;
}

// Applies choose(scores of the token, token) to every token; each returns `width` ids.
template <typename Choose>
void choose_ids(const OpCall& call, int64_t width, const Choose& choose, model::TensorView& result) {
  const int64_t tokens = call.inputs[0].num_rows();
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto scores = load<T>(call.inputs[0]);
    const auto num_experts = static_cast<size_t>(call.inputs[0].row_len());
    Reused<int32_t> ids;
    ids.reserve(static_cast<size_t>(tokens * width));
    for (int64_t t = 0; t < tokens; ++t) {
      const auto row = std::span<const T>(scores).subspan(static_cast<size_t>(t) * num_experts, num_experts);
      const Reused<int32_t> chosen = choose(row, t);
      ids.insert(ids.end(), chosen.begin(), chosen.end());
    }
    put(result, model::DType::kI32, {tokens, width}, std::move(ids));
  });
}

}  // namespace

template <typename T>
Reused<T> biased_scores(std::span<const T> scores, std::span<const float> bias) {
  Reused<T> biased(scores.begin(), scores.end());
  for (size_t e = 0; e < bias.size(); ++e) {
    biased[e] += static_cast<T>(bias[e]);
  }
  return biased;
}

template <typename T>
Reused<T> group_scores(const model::ModelConfig& config, std::span<const T> biased) {
  const auto group_len = static_cast<size_t>(config.experts_per_group());
  Reused<T> scores;
  scores.reserve(biased.size() / group_len);
  for (size_t begin = 0; begin < biased.size(); begin += group_len) {
    Reused<T> group(biased.begin() + static_cast<int64_t>(begin),
                    biased.begin() + static_cast<int64_t>(begin + group_len));
    std::sort(group.begin(), group.end(), std::greater<T>());
    scores.push_back(config.topk_method == model::TopkMethod::kNoauxTc ? group[0] + group[1] : group[0]);
  }
  return scores;
}

template <typename T>
Reused<int32_t> largest(std::span<const T> values, int64_t count) {
  Reused<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t left, int32_t right) {
    const T a = values[static_cast<size_t>(left)];
    const T b = values[static_cast<size_t>(right)];
    if (std::isnan(a) || std::isnan(b)) {
      return std::isnan(a) && std::isnan(b) ? left < right : std::isnan(b);
    }
    return a == b ? left < right : a > b;
  });
  ids.resize(static_cast<size_t>(count));
  return ids;
}

template Reused<float> biased_scores<float>(std::span<const float>, std::span<const float>);
template Reused<double> biased_scores<double>(std::span<const double>, std::span<const float>);
template Reused<float> group_scores<float>(const model::ModelConfig&, std::span<const float>);
template Reused<double> group_scores<double>(const model::ModelConfig&, std::span<const double>);
template Reused<int32_t> largest<float>(std::span<const float>, int64_t);
template Reused<int32_t> largest<double>(std::span<const double>, int64_t);

void router_scores(const OpCall& call, model::TensorView& result) {
  const bool is_softmax = call.config().scoring_func == model::ScoringFunction::kSoftmax;
  const bool stays_fp32 = call.rules.router == RouterRule::kFp32 || is_softmax;
  const auto dtype = stays_fp32 ? model::DType::kF32 : call.rules.half;
  const auto num_experts = static_cast<size_t>(call.inputs[0].row_len());
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    auto scores = load<T>(call.inputs[0]);
    for (size_t begin = 0; begin < scores.size(); begin += num_experts) {
      const auto row = std::span<T>(scores).subspan(begin, num_experts);
      if (is_softmax) {
        std::ranges::copy(softmax<T>(row), row.begin());
      } else {
        std::transform(row.begin(), row.end(), row.begin(), sigmoid<T>);
      }
    }
    store(result, call.inputs[0].shape, std::move(scores), dtype);
  });
}

void router_groups(const OpCall& call, model::TensorView& result) {
  const auto bias = weight_vector(call);
  const auto choose = [&]<typename T>(std::span<const T> scores, int64_t) {
    return largest<T>(group_scores<T>(call.config(), biased_scores<T>(scores, bias)), call.config().topk_group);
  };
  choose_ids(call, call.config().topk_group, choose, result);
}

void router_experts(const OpCall& call, model::TensorView& result) {
  const auto bias = weight_vector(call);
  const auto& config = call.config();
  const auto choose = [&]<typename T>(std::span<const T> scores, int64_t token) {
    auto biased = biased_scores<T>(scores, bias);
    if (call.inputs.size() == 2) {
      const auto width = static_cast<size_t>(call.inputs[1].row_len());
      const auto kept = call.inputs[1].codes<int32_t>().subspan(static_cast<size_t>(token) * width, width);
      for (size_t e = 0; e < biased.size(); ++e) {
        const auto group = static_cast<int32_t>(static_cast<int64_t>(e) / config.experts_per_group());
        if (std::find(kept.begin(), kept.end(), group) == kept.end()) {
          biased[e] = -std::numeric_limits<T>::infinity();
        }
      }
    }
    return largest<T>(biased, config.num_experts_per_tok);
  };
  choose_ids(call, config.num_experts_per_tok, choose, result);
}

void router_weights(const OpCall& call, model::TensorView& result) {
  const auto& config = call.config();
  const auto ids = call.inputs[1].codes<int32_t>();
  const auto k = static_cast<size_t>(config.num_experts_per_tok);
  const auto num_experts = static_cast<size_t>(call.inputs[0].row_len());
  const bool bf16_stored = call.rules.router == RouterRule::kBf16;
  const bool bf16_steps = bf16_stored && config.scoring_func == model::ScoringFunction::kSigmoid;
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    const auto step = [&](T value) {
      return bf16_steps ? static_cast<T>(round_to_half(call.rules.half, static_cast<float>(value))) : value;
    };
    const auto scores = load<T>(call.inputs[0]);
    Reused<T> weights;
    weights.reserve(ids.size());
    for (size_t t = 0; t < ids.size() / k; ++t) {
      T sum = 0;
      for (size_t slot = 0; slot < k; ++slot) {
        sum += scores[t * num_experts + static_cast<size_t>(ids[t * k + slot])];
      }
      const T denominator = config.norm_topk_prob ? step(sum) + static_cast<T>(1e-20) : T{1};
      for (size_t slot = 0; slot < k; ++slot) {
        const T score = scores[t * num_experts + static_cast<size_t>(ids[t * k + slot])];
        weights.push_back(step(score / denominator) * static_cast<T>(routed_factor(call.rules, config)));
      }
    }
    store(result, call.inputs[1].shape, std::move(weights), bf16_stored ? call.rules.half : model::DType::kF32);
  });
}

}  // namespace reference
