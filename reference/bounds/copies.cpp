// Ops that only move numbers: nothing may change at all.
#include "reference/bounds/bounds.hpp"
#include "reference/bounds/builder.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

model::Estimate estimate_embed(const EstimateCall& call) {
  const WeightMatrix table(call.weights, call.op.weights[0]);
  const auto& tokens = call.inputs[0].value;
  auto result = empty_estimate({static_cast<int64_t>(tokens.size()), table.in_dim()}, stored_as(call.rules, model::DType::kBF16));
  std::vector<float> row(static_cast<size_t>(table.in_dim()));
  for (size_t t = 0; t < tokens.size(); ++t) {
    CHECK(tokens[t] >= 0 && tokens[t] < static_cast<double>(table.out_dim()));
    table.code_row(static_cast<int64_t>(tokens[t]), row);
    std::copy(row.begin(), row.end(), result.value.begin() + static_cast<int64_t>(t) * table.in_dim());
  }
  return result;
}

model::Estimate estimate_cache_latent(const EstimateCall& call) {
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
      copy(call.inputs[0], token, 0);
      copy(call.inputs[1], token, kv_lora);
    }
  }
  return result;
}

}  // namespace reference
