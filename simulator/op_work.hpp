// Bytes and FLOPs of one call of each op family, from the model's sizes. FP8 weights count a byte each: their scales are 1/4096 more.
#pragma once

#include "model/config.hpp"
#include "simulator/op_fit.hpp"

namespace simulator {

struct GemmShape {
  double m = 0;
  double n = 0;
  double k = 0;
};

// A linear layer: weight_bytes_each 1 (FP8) or 2 (BF16), the input of the same width, the output BF16.
OpWork gemm_work(const GemmShape& shape, int weight_bytes_each);

// MLA of one decode step on a rank with `heads` heads: projections, absorbed products, scores, values.
struct AttentionShape {
  double heads = 0;
  double sequences = 0;
  double new_tokens = 1;  // of each sequence: they share one pass over its cache
  double kv_len = 0;
  int cache_bytes_each = 2;
};
OpWork attention_work(const model::ModelConfig& config, const AttentionShape& shape);

// Weights of attention on a rank with `heads` heads; the latent projections are whole on every rank.
double attention_weights(const model::ModelConfig& config, double heads);

// The experts of one rank. `active`: experts that some token chose; `rows`: token copies; each expert cut into `expert_tp` slices.
OpWork experts_work(const model::ModelConfig& config, double active, double rows, double expert_tp);
double expert_weights(const model::ModelConfig& config);

// Scores and values of `new_tokens` prompt tokens behind `num_cached`, causal, expanded form, `heads` heads.
OpWork prefill_scores_work(const model::ModelConfig& config, double heads, double num_cached, double new_tokens);

}  // namespace simulator
