// The attention core: scores, softmax, weighted sums.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/numerics/functions.hpp"
#include "reference/parallel.hpp"
#include "reference/rope.hpp"
#include "reference/tokens.hpp"
#include "reference/value_weights.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {
namespace {

// q . k over the parts of a head: [nope | rope], or latent and rope.
class ScoreTerms {
 public:
  explicit ScoreTerms(const EstimateCall& call)
      : call_(call),
        c_(call.config()),
        model_(sum_model(call.rules, call.num_sigmas)),
        absorbed_(call.inputs.size() == 3) {}

  // Scaled score. The dot's error, then the product with the scale and the subtraction of the maximum: 2 u of the score.
  [[nodiscard]] ValueWithError score(int64_t token, int64_t head, int64_t key_row) const {
    const int64_t main_len = absorbed_ ? c_.kv_lora_rank : c_.qk_nope_head_dim;
    const auto q = row_of(call_.inputs[0], token, head * (absorbed_ ? c_.kv_lora_rank : c_.qk_head_dim()), main_len);
    const auto q_rope = row_of(call_.inputs[1], token, head * c_.qk_rope_head_dim, c_.qk_rope_head_dim);
    const auto& cache = call_.inputs.back();
    const auto k = absorbed_ ? row_of(cache, key_row, 0, main_len)
                             : row_of(call_.inputs[2], key_row, head * (c_.qk_nope_head_dim + c_.v_head_dim), main_len);
    const auto k_rope = row_of(cache, key_row, c_.kv_lora_rank, c_.qk_rope_head_dim);
    TermSums terms;
    add_products(terms, q, k);
    const double scale = softmax_scale(c_);
    if (call_.rules.scores == ScoreRule::kBf16Steps && !call_.rules.exact()) {
      return score_in_bf16_steps(terms, q_rope, k_rope, scale);
    }
    add_products(terms, q_rope, k_rope);
    const double value = terms.sum * scale;
    return {value, (order_error(model_, terms) + terms.input_error) * scale + 2 * model_.unit * std::abs(value)};
  }

  [[nodiscard]] const SumModel& model() const { return model_; }

 private:
  // The same with BF16 between the steps; the absorbed form rounds its two dots before it adds them.
  [[nodiscard]] ValueWithError score_in_bf16_steps(TermSums terms,
                                                   const EstimateRow& q_rope,
                                                   const EstimateRow& k_rope,
                                                   double scale) const {
    const auto bf16_sum = [this](const TermSums& sum) {
      return rounded_value(call_.rules.half, {sum.sum, order_error(model_, sum) + sum.input_error});
    };
    ValueWithError dot;
    if (absorbed_) {
      TermSums rope_terms;
      add_products(rope_terms, q_rope, k_rope);
      const auto main = bf16_sum(terms);
      const auto rope = bf16_sum(rope_terms);
      dot = rounded_value(call_.rules.half, {main.value + rope.value, main.error + rope.error});
    } else {
      add_products(terms, q_rope, k_rope);
      dot = bf16_sum(terms);
    }
    const auto unit_error = model_.unit * std::abs(dot.value * scale);
    return rounded_value(call_.rules.half, {dot.value * scale, dot.error * scale + unit_error});
  }

  static void add_products(TermSums& terms, const EstimateRow& a, const EstimateRow& b) {
    for (size_t i = 0; i < a.value.size(); ++i) {
      terms.add(a.value[i] * b.value[i],
                a.error[i] * std::abs(b.value[i]) + std::abs(a.value[i]) * b.error[i] + a.error[i] * b.error[i]);
    }
  }

  const EstimateCall& call_;
  const model::ModelConfig& c_;
  SumModel model_;
  bool absorbed_;
};

struct SoftmaxRow {
  std::vector<ValueWithError> probs;
  ValueWithError lse;
};

// p_j = exp(s_j - max) / sum. A shift e_j of the scores moves p_j by at most a factor exp(e_j + sum_i p_i e_i); exp and the
// division are functions of the device, the exponent's rounding is u * |s - max|, and the positive sum errs like any other.
SoftmaxRow softmax_with_error(const SumModel& model, double flush, const std::vector<ValueWithError>& scores) {
  double top = scores[0].value;
  for (const auto& score : scores) {
    top = std::max(top, score.value);
  }
  TermSums sum;
  std::vector<double> exps;
  for (const auto& score : scores) {
    exps.push_back(exp_f64(score.value - top));
    sum.add(exps.back());
  }
  SoftmaxRow row;
  double mean_error = 0;
  std::vector<double> shifts;
  for (size_t j = 0; j < scores.size(); ++j) {
    shifts.push_back(scores[j].error + model.unit * std::abs(scores[j].value - top));
    mean_error += exps[j] / sum.sum * shifts[j];
  }
  const double common = mean_error + order_error(model, sum) / sum.sum + 2 * kFunctionUnits * model.unit;
  for (size_t j = 0; j < scores.size(); ++j) {
    const double p = exps[j] / sum.sum;
    row.probs.push_back({p, p * std::expm1(shifts[j] + common) + flush});
  }
  const double lse = top + log_f64(sum.sum);
  row.lse = {lse, mean_error + order_error(model, sum) / sum.sum + kFunctionUnits * model.unit * (1 + std::abs(lse))};
  return row;
}

// Probabilities as the value product sees them: divided by their factor, rounded, multiplied again (value_weights.hpp). Where the
// factor is not 1 the two operations err by 2 u and stand for an exp whose argument a kernel rounds once: 2 functions more.
model::Estimate probs_for_value(const EstimateCall& call, std::span<const TokenPlace> places) {
  model::Estimate probs = call.inputs[0];
  if (!rounds_weights(call.rules.probs) || call.rules.exact()) {
    return probs;
  }
  const double unit = sum_model(call.rules, call.num_sigmas).unit;
  const int64_t heads = call.config().num_attention_heads;
  const int64_t max_keys = probs.shape.back();
  for (int64_t row = 0; row < static_cast<int64_t>(places.size()) * heads; ++row) {
    const auto p = row_of(
        call.inputs[0], row / heads, row % heads * max_keys, places[static_cast<size_t>(row / heads)].num_visible());
    const auto factors = value_factors(call.rules.probs, p.value);
    for (size_t key = 0; key < factors.size(); ++key) {
      const double weight = p.value[key] / factors[key];
      const double function = factors[key] == 1.0 ? 0 : 2 * (kFunctionUnits + 1) * unit * weight;
      const auto stored = rounded_value(call.rules.half, {weight, p.error[key] / factors[key] + function});
      set(probs,
          row * max_keys + static_cast<int64_t>(key),
          {stored.value * factors[key], stored.error * factors[key]});
    }
  }
  return probs;
}

// Weights that are divided by the sum of exponentials only after they met the values: how far that division is off, relative to the
// result. Every probability has the error of the same sum, so the surest of them bounds it; dividing rounds, and so may a factor that
// is applied before. 0 where the weights are the probabilities.
double factor_error(const EstimateCall& call, const EstimateRow& probs) {
  if (!rounds_weights(call.rules.probs) || call.rules.exact()) {
    return 0;
  }
  const auto factors = value_factors(call.rules.probs, probs.value);
  if (std::ranges::all_of(factors, [](double factor) { return factor == 1.0; })) {
    return 0;
  }
  double smallest = HUGE_VAL;
  for (size_t key = 0; key < probs.value.size(); ++key) {
    if (probs.value[key] > 0) {
      smallest = std::min(smallest, probs.error[key] / probs.value[key]);
    }
  }
  return smallest + 2 * sum_model(call.rules, call.num_sigmas).unit;
}

}  // namespace

model::Estimate estimate_softmax(const EstimateCall& call) {
  const bool want_lse = call.op.kind == model::OpKind::kAttentionLse;
  const ScoreTerms terms(call);
  const auto places = token_places(call.workload);
  const auto tokens = static_cast<int64_t>(places.size());
  const int64_t heads = call.config().num_attention_heads;
  const int64_t max_keys = call.workload.max_keys();
  const model::Shape shape = want_lse ? model::Shape{tokens, heads} : model::Shape{tokens, heads, max_keys};
  const bool stored_bf16 = call.rules.probs == ProbsRule::kBf16Stored && !want_lse;
  auto result = empty_estimate(shape, stored_as(call.rules, stored_bf16 ? call.rules.half : model::DType::kF32));
  parallel_for(tokens * heads, call.num_threads, [&](int64_t row) {
    const auto& place = places[static_cast<size_t>(row / heads)];
    std::vector<ValueWithError> scores;
    for (int64_t key = 0; key < place.num_visible(); ++key) {
      scores.push_back(terms.score(row / heads, row % heads, place.first_key_row + key));
    }
    const auto softmax = softmax_with_error(terms.model(), flush_error(call.rules), scores);
    if (want_lse) {
      set(result, row, softmax.lse);
      return;
    }
    for (size_t key = 0; key < softmax.probs.size(); ++key) {
      set(result, row * max_keys + static_cast<int64_t>(key), softmax.probs[key]);
    }
  });
  return result;
}

// Expanded: sum over keys of p v. Absorbed: W_UV times the stored o_latent.
model::Estimate estimate_context(const EstimateCall& call) {
  const auto& c = call.config();
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const int64_t heads = c.num_attention_heads;
  const int64_t head_rows = c.qk_nope_head_dim + c.v_head_dim;
  const int64_t tokens = call.inputs[0].shape.front();
  auto result = empty_estimate({tokens, heads * c.v_head_dim}, stored_as(call.rules, call.rules.half));
  if (call.inputs.size() == 1) {
    const WeightMatrix kv_b(call.weights, call.op.weights[0]);
    const WeightForm form = stored_form(call.rules);
    parallel_for(heads * c.v_head_dim, call.num_threads, [&](int64_t out) {
      std::vector<float> row(static_cast<size_t>(c.kv_lora_rank));
      const int64_t weight_row = out / c.v_head_dim * head_rows + c.qk_nope_head_dim + out % c.v_head_dim;
      kv_b.row_as(form, weight_row, row);
      const std::vector<double> w(row.begin(), row.end());
      for (int64_t t = 0; t < tokens; ++t) {
        const auto latent = row_of(call.inputs[0], t, out / c.v_head_dim * c.kv_lora_rank, c.kv_lora_rank);
        set(result, t * heads * c.v_head_dim + out, dot_with_error(model, latent.value, latent.error, w, {}));
      }
    });
    return result;
  }
  const auto places = token_places(call.workload);
  const auto probs = probs_for_value(call, places);
  const int64_t max_keys = probs.shape.back();
  parallel_for(tokens * heads, call.num_threads, [&](int64_t row) {
    const auto& place = places[static_cast<size_t>(row / heads)];
    const auto p = row_of(probs, row / heads, row % heads * max_keys, place.num_visible());
    const double factor =
        factor_error(call, row_of(call.inputs[0], row / heads, row % heads * max_keys, place.num_visible()));
    for (int64_t v = 0; v < c.v_head_dim; ++v) {
      TermSums terms;
      for (int64_t key = 0; key < place.num_visible(); ++key) {
        const auto value =
            row_of(call.inputs[1], place.first_key_row + key, row % heads * head_rows + c.qk_nope_head_dim + v, 1);
        const auto k = static_cast<size_t>(key);
        terms.add(p.value[k] * value.value[0],
                  p.error[k] * std::abs(value.value[0]) + p.value[k] * value.error[0] + p.error[k] * value.error[0]);
      }
      set(result,
          row * c.v_head_dim + v,
          {terms.sum, order_error(model, terms) + terms.input_error + std::abs(terms.sum) * factor});
    }
  });
  return result;
}

model::Estimate estimate_query_latent(const EstimateCall& call) {
  const auto& c = call.config();
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const WeightMatrix kv_b(call.weights, call.op.weights[0]);
  const WeightForm form = stored_form(call.rules);
  const int64_t tokens = call.inputs[0].shape.front();
  const int64_t heads = c.num_attention_heads;
  auto result = empty_estimate({tokens, heads, c.kv_lora_rank}, stored_as(call.rules, call.rules.half));
  parallel_for(heads, call.num_threads, [&](int64_t head) {
    std::vector<std::vector<float>> rows(static_cast<size_t>(c.qk_nope_head_dim),
                                         std::vector<float>(static_cast<size_t>(c.kv_lora_rank)));
    for (int64_t i = 0; i < c.qk_nope_head_dim; ++i) {
      const int64_t weight_row = head * (c.qk_nope_head_dim + c.v_head_dim) + i;
      auto& row = rows[static_cast<size_t>(i)];
      kv_b.row_as(form, weight_row, row);
    }
    std::vector<double> column(rows.size());
    for (int64_t j = 0; j < c.kv_lora_rank; ++j) {
      for (size_t i = 0; i < rows.size(); ++i) {
        column[i] = rows[i][static_cast<size_t>(j)];
      }
      for (int64_t t = 0; t < tokens; ++t) {
        const auto q = row_of(call.inputs[0], t, head * c.qk_head_dim(), c.qk_nope_head_dim);
        set(result, (t * heads + head) * c.kv_lora_rank + j, dot_with_error(model, q.value, q.error, column, {}));
      }
    }
  });
  return result;
}

model::Estimate estimate_output_latent(const EstimateCall& call) {
  const auto& c = call.config();
  const SumModel model = sum_model(call.rules, call.num_sigmas);
  const auto places = token_places(call.workload);
  const auto tokens = static_cast<int64_t>(places.size());
  const int64_t heads = c.num_attention_heads;
  const auto probs = probs_for_value(call, places);
  const int64_t max_keys = probs.shape.back();
  auto result = empty_estimate({tokens, heads, c.kv_lora_rank}, stored_as(call.rules, call.rules.half));
  parallel_for(tokens * heads, call.num_threads, [&](int64_t row) {
    const auto& place = places[static_cast<size_t>(row / heads)];
    const auto p = row_of(probs, row / heads, row % heads * max_keys, place.num_visible());
    const double factor =
        factor_error(call, row_of(call.inputs[0], row / heads, row % heads * max_keys, place.num_visible()));
    std::vector<TermSums> sums(static_cast<size_t>(c.kv_lora_rank));
    for (int64_t key = 0; key < place.num_visible(); ++key) {
      const auto latent = row_of(call.inputs[1], place.first_key_row + key, 0, c.kv_lora_rank);
      const auto k = static_cast<size_t>(key);
      for (size_t j = 0; j < sums.size(); ++j) {
        sums[j].add(p.value[k] * latent.value[j],
                    p.error[k] * std::abs(latent.value[j]) + (p.value[k] + p.error[k]) * latent.error[j]);
      }
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      set(result,
          row * c.kv_lora_rank + static_cast<int64_t>(j),
          {sums[j].sum, order_error(model, sums[j]) + sums[j].input_error + std::abs(sums[j].sum) * factor});
    }
  });
  return result;
}

}  // namespace reference
