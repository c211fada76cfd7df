// Attention of a layer: the query, the latent cache, and both forms on it: absorbed for rows that decode, expanded for those that prefill.
#include "gpu/engine/forward.hpp"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/cache_latent.cuh"
#include "gpu/kernels/expanded_attention.cuh"
#include "gpu/kernels/gather_latent.cuh"
#include "gpu/kernels/latent_attention.cuh"
#include "gpu/kernels/quantize_rows.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/rotate.cuh"

namespace gpu {

// kv_a comes first: the norm of q_a takes the place of the codes that both read.
void Forward::run_query(const Layer& layer, int64_t rows) {
  const char* const name = layer.name.c_str();
  const LayerWeights& w = layer.weights;
  const std::string q_id = layer.name + (w.q_a ? ".attn.q_b" : ".attn.q");
  observer_.run(name, ".attn.kv_a", [&] { linear(w.kv_a, ws_.normed, {.y = ws_.kv_a}, rows, num_decode_rows_); });
  if (w.q_a) {
    observer_.run(name, ".attn.q_a", [&] { linear(*w.q_a, ws_.normed, {.y = ws_.q_a}, rows, num_decode_rows_); });
    observer_.show(layer.name + ".attn.q_a", ws_.q_a);
    observer_.run(name, ".attn.q_a_norm", [&] {
      const bool fp8 = w.q.is_fp8();
      backend_.launch(RmsNormArguments{.x = ws_.q_a,
                                       .gain = w.q_a_norm,
                                       .normed = ws_.q_a_norm,
                                       .codes = fp8 ? ws_.codes : nullptr,
                                       .scales = fp8 ? ws_.scales : nullptr,
                                       .num_tokens = rows,
                                       .x_stride = w.q_a->out_dim,
                                       .scale_stride = rows,
                                       .hidden = static_cast<int>(w.q_a->out_dim),
                                       .epsilon = static_cast<float>(config_.rms_norm_eps),
                                       .scale_format = scale_format_});
    });
    observer_.show(layer.name + ".attn.q_a_norm", ws_.q_a_norm);
  }
  observer_.run(
      q_id.c_str(), "", [&] { linear(w.q, w.q_a ? ws_.q_a_norm : ws_.normed, {.y = ws_.q}, rows, num_decode_rows_); });
  observer_.show(q_id, ws_.q);
  observer_.show(layer.name + ".attn.kv_a", ws_.kv_a);
  observer_.run(name, ".attn.q_rope", [&] {
    backend_.launch(RotateQueryArguments{.q = ws_.q,
                                         .cos_sin = ws_.rotations,
                                         .positions = ws_.positions,
                                         .q_rope = ws_.q_rope,
                                         .num_tokens = rows,
                                         .num_heads = static_cast<int>(shard_.num_heads),
                                         .nope = static_cast<int>(config_.qk_nope_head_dim),
                                         .rope = static_cast<int>(config_.qk_rope_head_dim)});
  });
  observer_.show(layer.name + ".attn.q_rope", ws_.q_rope);
}

void Forward::write_cache(const Layer& layer, int64_t rows) {
  observer_.run(layer.cache_id.c_str(), "", [&] {
    backend_.launch(CacheLatentArguments{.kv_a = ws_.kv_a,
                                         .gain = layer.weights.kv_a_norm,
                                         .cos_sin = ws_.rotations,
                                         .positions = ws_.positions,
                                         .slots = ws_.slots,
                                         .cache = cache_.half16_pages(layer.index),
                                         .num_tokens = rows,
                                         .kv_lora = static_cast<int>(config_.kv_lora_rank),
                                         .rope = static_cast<int>(config_.qk_rope_head_dim),
                                         .epsilon = static_cast<float>(config_.rms_norm_eps),
                                         .cache_fp8 = cache_.fp8_pages(layer.index),
                                         .normed = observer_.has_probe() ? ws_.kv_a_norm : nullptr});
  });
  observer_.show(layer.name + ".attn.kv_a_norm", ws_.kv_a_norm);
  observer_.show_cache(layer.name, layer.cache_id, cache_, layer.index);
}

// Decoding: on the latents themselves, W_UK absorbed into the query and W_UV into the output.
void Forward::run_absorbed(const Layer& layer, const StepShape& shape) {
  const char* const name = layer.name.c_str();
  const LayerWeights& w = layer.weights;
  const int64_t rows = shape.num_decode_rows;
  const int64_t heads = shard_.num_heads;
  const int64_t latent = config_.kv_lora_rank;
  if (rows == 0 && shape.num_rows > 0) {
    return;  // a step of no rows at all only asks the launchers
  }
  observer_.run(name, ".attn.q_latent", [&] {
    backend_.launch(Bf16LinearArguments{.x = ws_.q,
                                        .weight = w.w_uk,
                                        .y_half16 = ws_.q_latent,
                                        .num_tokens = rows,
                                        .x_stride = heads * config_.qk_head_dim(),
                                        .x_batch_stride = config_.qk_head_dim(),
                                        .y_stride = heads * latent,
                                        .y_batch_stride = latent,
                                        .out_dim = latent,
                                        .in_dim = config_.qk_nope_head_dim,
                                        .num_batches = static_cast<int>(heads)});
  });
  observer_.show(layer.name + ".attn.q_latent", ws_.q_latent);
  observer_.run(name, ".attn.o_latent", [&] {
    backend_.launch(LatentAttentionArguments{.q_latent = ws_.q_latent,
                                             .q_rope = ws_.q_rope,
                                             .cache = cache_.half16_pages(layer.index),
                                             .block_table = ws_.block_table,
                                             .num_keys = ws_.num_keys,
                                             .first_token = ws_.first_token,
                                             .first_split = ws_.first_split,
                                             .split_sequence = ws_.split_sequence,
                                             .partial_o = ws_.partial_o,
                                             .partial_stats = ws_.partial_stats,
                                             .o_latent = ws_.o_latent,
                                             .lse = ws_.lse,
                                             .num_sequences = static_cast<int>(shape.num_decoding),
                                             .max_pages = static_cast<int>(limits_.max_pages()),
                                             .max_splits = static_cast<int>(shape.num_decode_splits),
                                             .max_new = static_cast<int>(limits_.max_decode_rows),
                                             .pages_per_split = limits_.pages_per_split,
                                             .num_heads = static_cast<int>(heads),
                                             .kv_lora = static_cast<int>(latent),
                                             .rope = static_cast<int>(config_.qk_rope_head_dim),
                                             .scale = softmax_scale_,
                                             .cache_fp8 = cache_.fp8_pages(layer.index)});
  });
  observer_.show(layer.name + ".attn.o_latent", ws_.o_latent);
  observer_.run(name, ".attn.context", [&] {
    backend_.launch(Bf16LinearArguments{.x = ws_.o_latent,
                                        .weight = w.w_uv,
                                        .y_half16 = ws_.context,
                                        .num_tokens = rows,
                                        .x_stride = heads * latent,
                                        .x_batch_stride = latent,
                                        .y_stride = heads * config_.v_head_dim,
                                        .y_batch_stride = config_.v_head_dim,
                                        .out_dim = config_.v_head_dim,
                                        .in_dim = latent,
                                        .num_batches = static_cast<int>(heads)});
  });
}

// Prefill: on keys and values that kv_b makes of all cached latents of the sequences.
void Forward::run_expanded(const Layer& layer, const StepShape& shape) {
  const char* const name = layer.name.c_str();
  const LinearWeight& kv_b = layer.weights.kv_b;
  const int64_t keys = shape.num_prefill_keys;
  if (keys == 0 && shape.num_rows > 0) {
    return;
  }
  observer_.run(name, ".attn.kv_b", [&] {
    backend_.launch(GatherLatentArguments{.cache = cache_.half16_pages(layer.index),
                                          .slots = ws_.key_slots,
                                          .latent = kv_b.is_fp8() ? nullptr : ws_.key_latent,
                                          .k_rope = ws_.key_rope,
                                          .codes = kv_b.is_fp8() ? ws_.codes : nullptr,
                                          .scales = kv_b.is_fp8() ? ws_.scales : nullptr,
                                          .num_rows = keys,
                                          .scale_stride = keys,
                                          .kv_lora = static_cast<int>(config_.kv_lora_rank),
                                          .rope = static_cast<int>(config_.qk_rope_head_dim),
                                          .scale_format = scale_format_,
                                          .cache_fp8 = cache_.fp8_pages(layer.index)});
    linear(kv_b, ws_.key_latent, {.y = ws_.kv}, keys, 0);
  });
  observer_.show(layer.name + ".attn.kv_b", ws_.kv);
  observer_.run(name, ".attn.context", [&] {
    backend_.launch(ExpandedAttentionArguments{.q = ws_.q,
                                               .q_rope = ws_.q_rope,
                                               .kv = ws_.kv,
                                               .k_rope = ws_.key_rope,
                                               .first_row = ws_.first_key_row,
                                               .first_key = ws_.first_key,
                                               .num_keys = ws_.num_keys + shape.num_decoding,
                                               .first_token = ws_.first_token + shape.num_decoding,
                                               .context = ws_.context,
                                               .lse = ws_.lse,
                                               .num_sequences = static_cast<int>(shape.num_prefilling),
                                               .max_new = static_cast<int>(shape.max_prefill_new),
                                               .num_heads = static_cast<int>(shard_.num_heads),
                                               .nope = static_cast<int>(config_.qk_nope_head_dim),
                                               .rope = static_cast<int>(config_.qk_rope_head_dim),
                                               .v = static_cast<int>(config_.v_head_dim),
                                               .scale = softmax_scale_});
  });
}

void Forward::run_output(const Layer& layer, int64_t rows) {
  const LinearWeight& o_proj = layer.weights.o_proj;
  observer_.show(layer.name + ".attn.lse", ws_.lse);
  observer_.show(layer.name + ".attn.context", ws_.context);
  observer_.run(layer.name.c_str(), ".attn.o_proj", [&] {
    if (o_proj.is_fp8()) {
      backend_.launch(QuantizeRowsArguments{.x = ws_.context,
                                            .codes = ws_.codes,
                                            .scales = ws_.scales,
                                            .num_rows = rows,
                                            .scale_stride = rows,
                                            .row_len = static_cast<int>(o_proj.in_dim),
                                            .scale_format = scale_format_});
    }
    shared_linear(o_proj, ws_.context, ws_.x, rows);
  });
  observer_.show(layer.name + ".attn.o_proj", ws_.x + shard_.stream_rows(rows).first * o_proj.out_dim);
}

}  // namespace gpu
