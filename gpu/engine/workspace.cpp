#include "gpu/engine/workspace.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "gpu/kernels/latent_attention.cuh"
#include "gpu/kernels/linear_tile.cuh"
#include "gpu/kernels/pack_rows.cuh"

namespace gpu {
namespace {

int64_t blocks_of(int64_t len) {
  return (len + kScaleBlockLen - 1) / kScaleBlockLen;
}
int64_t padded(int64_t len) {
  return blocks_of(len) * kScaleBlockLen;
}

// Every linear whose K may be split.
std::vector<const LinearWeight*> linears_of(const DeviceWeights& weights) {
  std::vector<const LinearWeight*> linears{&weights.head};
  const auto add_mlp = [&](const std::optional<MlpWeights>& mlp) {
    if (mlp) {
      linears.insert(linears.end(), {&mlp->gate_up, &mlp->down});
    }
  };
  const auto add_layer = [&](const LayerWeights& layer) {
    linears.insert(linears.end(), {&layer.q, &layer.kv_a, &layer.kv_b, &layer.o_proj});
    if (layer.q_a) {
      linears.push_back(&*layer.q_a);
    }
    add_mlp(layer.mlp);
    if (layer.moe) {
      linears.push_back(&layer.moe->router);
      add_mlp(layer.moe->shared);
    }
  };
  std::ranges::for_each(weights.layers, add_layer);
  for (const MtpWeights& mtp : weights.mtp) {
    linears.insert(linears.end(), {&mtp.eh_proj, &mtp.head});
    add_layer(mtp.layer);
  }
  return linears;
}

}  // namespace

int64_t StepLimits::max_pages() const {
  return (max_len + emulated::kPageLen - 1) / emulated::kPageLen;
}

int64_t StepLimits::max_splits() const {
  return (max_pages() + pages_per_split - 1) / pages_per_split;
}

int num_splits_of(int64_t out_dim, int64_t in_dim, int num_groups) {
  constexpr int64_t kMultiprocessors = 132;
  // n splits write n partial sums and read n - 1, FP32 each: beside codes of one byte that is (2n - 1) 4 tokens / in_dim of the weights.
  // At most a twentieth of them for so many tokens.
  constexpr int64_t kFewTokens = 8;
  constexpr int64_t kLenOfSum = 20 * 4 * kFewTokens;
  if (num_groups > 1 || out_dim == 0) {
    return 1;
  }
  const int64_t num_tiles = (out_dim + emulated::kLinearRows - 1) / emulated::kLinearRows;
  const int64_t most = (in_dim / kLenOfSum + 1) / 2;
  return static_cast<int>(std::max<int64_t>(1, std::min((kMultiprocessors + num_tiles - 1) / num_tiles, most)));
}

Workspace::Workspace(const model::ModelConfig& config,
                     const Shard& shard,
                     const DeviceWeights& weights,
                     const StepLimits& limits,
                     bool with_packed_experts,
                     bool pulls_outputs,
                     MemoryPlan& plan) {
  const int64_t rows = limits.max_rows;
  const int64_t sequences = limits.max_sequences;
  const int64_t hidden = config.hidden_size;
  const int64_t heads = shard.num_heads;
  const int64_t q_lora = config.q_lora_rank.value_or(0);
  const int64_t head_rows_len = limits.max_head_rows;
  plan.add(tokens, rows, "tokens");
  plan.add(positions, rows, "positions");
  plan.add(slots, rows, "slots");
  plan.add(block_table, sequences * limits.max_pages(), "block_table");
  plan.add(num_keys, sequences, "num_keys");
  plan.add(first_token, sequences + 1, "first_token");
  const int64_t keys = limits.max_prefill_keys;
  plan.add(key_slots, keys, "key_slots");
  plan.add(first_key_row, sequences + 1, "first_key_row");
  plan.add(first_key, sequences, "first_key");
  plan.add(state_rows, rows, "state_rows");
  plan.add(head_rows, head_rows_len, "head_rows");
  plan.add(rotations, limits.num_rotations(config) * config.qk_rope_head_dim, "rotations");

  const int64_t shared_dim = padded(shard.shared_dim);
  const int64_t dense_dim = std::max(padded(shard.dense_dim), shared_dim);
  const int64_t widest = std::max({hidden, q_lora, heads * config.v_head_dim, dense_dim});
  const int64_t shared_rows = shard.tp * shard.share_len(rows);  // as many of each tensor-parallel rank
  plan.add(x, shared_rows * hidden, "x");
  plan.add(residual, rows * hidden, "residual");
  plan.add(normed, std::max(shared_rows, rows * 2) * hidden, "normed");
  if (config.quantization) {
    plan.add(codes, std::max(rows * widest, keys * config.kv_lora_rank), "codes");
    plan.add(scales, std::max(rows * blocks_of(widest), keys * blocks_of(config.kv_lora_rank)), "scales");
  }
  plan.add(q_a, rows * q_lora, "q_a");
  plan.add(q_a_norm, rows * q_lora, "q_a_norm");
  plan.add(q, rows * heads * config.qk_head_dim(), "q");
  plan.add(kv_a, rows * config.latent_dim(), "kv_a");
  plan.add(kv_a_norm, rows * config.kv_lora_rank, "kv_a_norm");
  plan.add(q_rope, rows * heads * config.qk_rope_head_dim, "q_rope");
  plan.add(q_latent, rows * heads * config.kv_lora_rank, "q_latent");
  plan.add(o_latent, rows * heads * config.kv_lora_rank, "o_latent");
  plan.add(lse, rows * heads, "lse");
  plan.add(context, rows * heads * config.v_head_dim, "context");
  plan.add(key_latent, keys * config.kv_lora_rank, "key_latent");
  plan.add(key_rope, keys * config.qk_rope_head_dim, "key_rope");
  plan.add(kv, keys * heads * (config.qk_nope_head_dim + config.v_head_dim), "kv");
  const int64_t partial_rows = limits.max_splits() * heads * sequences * limits.max_decode_rows;
  plan.add(first_split, sequences + 1, "first_split");
  plan.add(split_sequence, sequences * limits.max_splits(), "split_sequence");
  plan.add(partial_o, partial_rows * config.kv_lora_rank, "partial_o");
  plan.add(partial_stats, partial_rows * 2, "partial_stats");

  plan.add(gate_up, rows * 2 * dense_dim, "gate_up");
  plan.add(act, rows * dense_dim, "act");
  if (const int64_t experts = config.n_routed_experts; experts > 0) {
    const int64_t dim = padded(shard.expert_dim);
    const int64_t k = config.num_experts_per_tok;
    const int64_t own = shard.num_experts;
    const bool exchanges = shard.num_exchanging() > 1;
    max_expert_rows = exchanges ? shard.num_exchanging() * shard.share_len(rows) : rows;
    const int64_t most = max_expert_rows;
    plan.add(shared, rows * hidden, "shared");
    plan.add(router_logits, rows * experts, "router_logits");
    plan.add(router_scores, rows * experts, "router_scores");
    plan.add(group_ids, rows * config.topk_group, "group_ids");
    plan.add(topk_ids, rows * k, "topk_ids");
    plan.add(topk_weights, rows * k, "topk_weights");
    plan.add(num_valid, own, "num_valid");
    plan.add(row_of_slot, most * k, "row_of_slot");
    int64_t num_expert_rows = own * most;
    plan.add(token_of_row, own * most, "token_of_row");
    if (with_packed_experts) {
      const int64_t num_tiles = emulated::packed_tiles(most, static_cast<int>(k), static_cast<int>(own));
      num_expert_rows = num_tiles * emulated::kSm90Tokens;
      plan.add(packed_codes, num_expert_rows * hidden, "packed_codes");
      plan.add(packed_scales, num_expert_rows * blocks_of(hidden), "packed_scales");
      plan.add(group_of_tile, num_tiles, "group_of_tile");
      plan.add(rows_of_tile, num_tiles, "rows_of_tile");
    }
    plan.add(expert_gate_up, num_expert_rows * 2 * dim, "expert_gate_up");
    plan.add(expert_act, num_expert_rows * dim, "expert_act");
    if (config.quantization) {
      plan.add(expert_codes, num_expert_rows * dim, "expert_codes");
      plan.add(expert_scales, num_expert_rows * blocks_of(dim), "expert_scales");
    }
    if (shard.expert_tp > 1) {
      plan.add(expert_sums, num_expert_rows * hidden, "expert_sums");
      plan.add(returned_sums, shard.expert_tp * shard.share_len(rows) * k * hidden, "returned_sums");
    } else {
      plan.add(expert_rows, num_expert_rows * hidden, "expert_rows");
    }
    if (exchanges) {
      if (config.quantization) {
        plan.add(received_codes, most * hidden, "received_codes");
        plan.add(received_scales, most * blocks_of(hidden), "received_scales");
      } else {
        plan.add(received, most * hidden, "received");
      }
      plan.add(received_experts, most * k, "received_experts");
      if (!pulls_outputs) {
        plan.add(returned_rows, rows * k * hidden, "returned_rows");
        plan.add(returned_slots, rows * k, "returned_slots");
      }
    }
  }

  for (const LinearWeight* linear : linears_of(weights)) {
    if (linear->num_splits > 1) {
      const int64_t most = std::max({rows, head_rows_len, keys});
      partial_len = std::max(partial_len, linear->num_splits * most * linear->out_dim);
      // A step of fewer rows may be cut into smaller tiles, of 16 rows at least.
      const int64_t num_tiles = (linear->out_dim + emulated::kLinearRows - 1) / emulated::kLinearRows;
      arrivals_len = std::max(arrivals_len, num_tiles * ((most + 15) / 16));
    }
  }
  plan.add(partial_sums, partial_len, "partial_sums");
  plan.add(arrivals, arrivals_len, "arrivals");

  if (shard.tp > 1) {
    plan.add(own_sums, rows * hidden, "own_sums");
    plan.add(all_sums, shard.tp * rows * hidden, "all_sums");
  }

  plan.add(main_state, limits.num_state_rows() * hidden, "main_state");
  plan.add(mtp_state, shared_rows * hidden, "mtp_state");
  plan.add(gathered, std::max(rows, head_rows_len) * hidden, "gathered");
  plan.add(logits, head_rows_len * config.vocab_size, "logits");
  if (shard.tp > 1) {
    plan.add(own_logits, head_rows_len * config.vocab_size / shard.tp, "own_logits");
    plan.add(all_logits, head_rows_len * config.vocab_size, "all_logits");
  }
  plan.add(sampler_rows, head_rows_len, "sampler_rows");
  plan.add(is_in_prompt, head_rows_len * config.vocab_size, "is_in_prompt");
  plan.add(num_generated, head_rows_len * config.vocab_size, "num_generated");
  plan.add(sampler_weights, head_rows_len * config.vocab_size, "sampler_weights");
  plan.add(sampled, head_rows_len, "sampled");
}

}  // namespace gpu
