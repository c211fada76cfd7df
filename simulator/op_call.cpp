#include "simulator/op_call.hpp"

#include "model/check.hpp"

namespace simulator {

OpCall gemm_call(const GemmShape& shape, int weight_bytes_each) {
  return {.family = weight_bytes_each == 1 ? OpFamily::kGemmFp8 : OpFamily::kGemmBf16,
          .work = gemm_work(shape, weight_bytes_each),
          .axes = {shape.n, shape.k, shape.m}};
}

OpCall experts_call(const model::ModelConfig& config, double active, double rows, double expert_tp) {
  OpCall call{.family = OpFamily::kExperts, .work = experts_work(config, active, rows, expert_tp)};
  if (expert_tp == 1 && active > 0) {
    call.axes = {active, rows};
  }
  return call;
}

OpCall all_reduce_call(double message_bytes, int64_t num_ranks) {
  OpCall call{.family = OpFamily::kAllReduce, .work = {.message_bytes = message_bytes, .num_ranks = num_ranks}};
  if (num_ranks > 1) {
    call.axes = {static_cast<double>(num_ranks), message_bytes};
  }
  return call;
}

OpCall call_at(OpFamily family, const OpAxes& axes, const model::ModelConfig& config) {
  switch (family) {
    case OpFamily::kGemmFp8:
    case OpFamily::kGemmBf16:
      return gemm_call({.m = axes[2], .n = axes[0], .k = axes[1]}, family == OpFamily::kGemmFp8 ? 1 : 2);
    case OpFamily::kExperts: return experts_call(config, axes[0], axes[1], 1);
    case OpFamily::kAttentionBf16:
    case OpFamily::kAttentionFp8:
      return {.family = family,
              .work = attention_work(config,
                                     {.heads = axes[0],
                                      .sequences = axes[2],
                                      .kv_len = axes[1],
                                      .cache_bytes_each = family == OpFamily::kAttentionFp8 ? 1 : 2}),
              .axes = axes};
    case OpFamily::kAllReduce: return all_reduce_call(axes[1], static_cast<int64_t>(axes[0]));
    case OpFamily::kPrefillScores:
      return {.family = family,
              .work = prefill_scores_work(config, static_cast<double>(config.num_attention_heads), 0, axes[0]),
              .axes = axes};
    case OpFamily::kDispatch:
    case OpFamily::kCombine: break;
  }
  model::throw_input_error("--op {}: no table of its own: dsv3-sim alltoall has its times",
                           op_family_info(family).name);
}

}  // namespace simulator
