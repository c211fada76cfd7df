// Ops that only move numbers: nothing may change at all. The FP8 form of the cache rounds what it moves, which leaves no freedom
// either on given inputs; inputs inside a run keep their errors at both ends of the interval.
#include <algorithm>
#include <cmath>

#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/ops/embed.hpp"
#include "reference/quantize.hpp"

namespace reference {

model::Estimate estimate_embed(const EstimateCall& call) {
  const auto& tokens = call.inputs[0].value;
  auto result = empty_estimate({static_cast<int64_t>(tokens.size()), call.config().hidden_size},
                               stored_as(call.rules, call.rules.half));
  auto next = result.value.begin();
  for (const double token : tokens) {
    for (const double value : model::to_double(embedding_row(call.weights, call.op, static_cast<int64_t>(token)))) {
      *next++ = round_to_format(result.dtype, value);
    }
  }
  return in_stream_units(call, result);
}

namespace {

std::vector<float> round_tripped(const Rules& rules, const EstimateRow& c, double sign) {
  std::vector<float> row;
  for (size_t i = 0; i < c.value.size(); ++i) {
    row.push_back(static_cast<float>(c.value[i] + sign * c.error[i]));
  }
  round_trip_fp8_cache(row, rules.half);
  return row;
}

// c as the cache holds it.
model::Estimate cached_form(const EstimateCall& call) {
  if (call.rules.cache == CacheRule::kBf16 || call.rules.exact()) {
    return call.inputs[0];
  }
  model::Estimate result = call.inputs[0];
  const int64_t len = row_len(result);
  for (int64_t t = 0; t < result.shape.front(); ++t) {
    const auto row = row_of(call.inputs[0], t, 0, len);
    const auto value = round_tripped(call.rules, row, 0);
    const auto low = round_tripped(call.rules, row, -1);
    const auto high = round_tripped(call.rules, row, 1);
    for (int64_t i = 0; i < len; ++i) {
      const auto element = static_cast<size_t>(i);
      const double error = std::max(std::abs(static_cast<double>(low[element]) - value[element]),
                                    std::abs(static_cast<double>(high[element]) - value[element]));
      set(result, t * len + i, {value[element], error});
    }
  }
  return result;
}

}  // namespace

model::Estimate estimate_cache_latent(const EstimateCall& call) {
  const model::Estimate latent = cached_form(call);
  const int64_t kv_lora = call.config().kv_lora_rank;
  const int64_t rope = call.config().qk_rope_head_dim;
  auto result = empty_estimate({call.workload.num_keys(), kv_lora + rope}, call.inputs[0].dtype);
  int64_t out = 0;
  const auto copy = [&](const model::Estimate& from, int64_t row, int64_t column) {
    const auto source = row_of(from, row, 0, row_len(from));
    for (size_t i = 0; i < source.value.size(); ++i) {
      set(result, out * (kv_lora + rope) + column + static_cast<int64_t>(i), {source.value[i], source.error[i]});
    }
  };
  int64_t old_row = 0;
  int64_t token = 0;
  for (const auto& [num_cached, num_new] : call.workload.sequences) {
    for (int64_t i = 0; i < num_cached; ++i, ++old_row, ++out) {
      copy(call.inputs[2], old_row, 0);
    }
    for (int64_t i = 0; i < num_new; ++i, ++token, ++out) {
      copy(latent, token, 0);
      copy(call.inputs[1], token, kv_lora);
    }
  }
  return result;
}

}  // namespace reference
