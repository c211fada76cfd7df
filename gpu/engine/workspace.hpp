// Device memory of a step: its inputs, every intermediate value, its results. Made once for the largest step.
#pragma once

#include <cstdint>

#include "gpu/engine/device_weights.hpp"
#include "gpu/engine/memory_plan.hpp"
#include "gpu/engine/shard.hpp"
#include "gpu/kernels/sampler.cuh"
#include "gpu/portable/types.hpp"
#include "model/config.hpp"

namespace gpu {

// How large a step may be.
struct StepLimits {
  int64_t max_rows = 0;  // new tokens of all sequences
  int64_t max_sequences = 0;
  int64_t max_len = 0;           // positions of a sequence, cached and new
  int64_t max_decode_rows = 1;   // new tokens of a sequence that decodes: one and its drafts
  int64_t max_head_rows = 0;     // rows whose logits are wanted
  int64_t max_prefill_keys = 0;  // positions of all sequences that prefill in one step, cached and new
  int64_t max_kept_states = 0;   // rows of the main model's state that later MTP steps read again
  int pages_per_split = 16;      // attention; a sequence of up to 16 pages is one split (docs/gpu.md)

  [[nodiscard]] int64_t max_pages() const;   // of a sequence
  [[nodiscard]] int64_t max_splits() const;  // of a sequence
  // Of main_state: kept ones come behind those of a step and what pads them to a whole number for each tensor-parallel rank.
  [[nodiscard]] int64_t first_kept_state() const { return max_rows + kMaxTensorRanks - 1; }
  [[nodiscard]] int64_t num_state_rows() const { return first_kept_state() + max_kept_states; }
  // Positions that are rotated by: MTP layers are ahead of their rows.
  [[nodiscard]] int64_t num_rotations(const model::ModelConfig& config) const {
    return max_len + config.num_nextn_predict_layers;
  }
};

// R rows, S sequences, H head rows, E experts of the model, L experts of the rank, K experts of a token, T tokens that the rank's experts
// can get: those of the step, or, from several ranks, as many as all of them can send. P rows of experts: packed into tiles of 64, or
// L * T. Sizes as in device_weights.hpp: the rank's own.
struct Workspace {
  Workspace(const model::ModelConfig& config,
            const Shard& shard,
            const DeviceWeights& weights,
            const StepLimits& limits,
            bool with_packed_experts,
            bool pulls_outputs,
            MemoryPlan& plan);

  // Inputs of a step.
  int32_t* tokens = nullptr;         // [R]; -1: padding
  int32_t* positions = nullptr;      // [R]; padding: 0
  int64_t* slots = nullptr;          // [R]; padding: -1
  int32_t* block_table = nullptr;    // [S, max_pages]
  int32_t* num_keys = nullptr;       // [S]; padding: 0
  int32_t* first_token = nullptr;    // [S + 1]
  int64_t* key_slots = nullptr;      // [max_prefill_keys]: of all positions of the sequences that prefill
  int32_t* first_key_row = nullptr;  // [S + 1]: a prefilling sequence's rows among them
  int32_t* first_key = nullptr;      // [S]: 0, where they begin
  int32_t* state_rows = nullptr;     // [R]: rows of the state that an MTP layer reads; padding: -1
  int32_t* head_rows = nullptr;      // [H]: rows whose logits are wanted; padding: -1
  float* rotations = nullptr;        // [num_rotations, rope / 2, 2]

  // The residual stream: the layer's input is x + residual. x: embedding, o_proj or ffn.
  half16* x = nullptr;         // [R, hidden]; room for a whole number of rows for each tensor-parallel rank
  half16* residual = nullptr;  // [R, hidden]
  half16* normed = nullptr;    // [R, 2 * hidden]: MTP layers norm two states side by side
  // Quantised input of the next linear.
  fp8_e4m3* codes = nullptr;  // [R, widest input] or [max_prefill_keys, kv_lora]
  float* scales = nullptr;    // [ceil(input / 128), rows]

  half16* q_a = nullptr;              // [R, q_lora]
  half16* q_a_norm = nullptr;         // [R, q_lora]
  half16* q = nullptr;                // [R, heads, nope + rope]
  half16* kv_a = nullptr;             // [R, kv_lora + rope]
  half16* kv_a_norm = nullptr;        // [R, kv_lora]: only for a probe
  half16* q_rope = nullptr;           // [R, heads, rope]
  half16* q_latent = nullptr;         // [R, heads, kv_lora]
  half16* o_latent = nullptr;         // [R, heads, kv_lora]
  float* lse = nullptr;               // [R, heads]
  half16* context = nullptr;          // [R, heads, v]
  half16* key_latent = nullptr;       // [max_prefill_keys, kv_lora]
  half16* key_rope = nullptr;         // [max_prefill_keys, rope]
  half16* kv = nullptr;               // [max_prefill_keys, heads, nope + v]
  int32_t* first_split = nullptr;     // [S + 1]
  int32_t* split_sequence = nullptr;  // [S * max_splits]
  float* partial_o = nullptr;         // as latent_attention wants it
  float* partial_stats = nullptr;

  half16* gate_up = nullptr;  // [R, 2 * widest padded dim] of the dense MLP or the shared expert
  half16* act = nullptr;      // [R, widest padded dim]
  half16* shared = nullptr;   // [R, hidden]

  float* router_logits = nullptr;    // [R, E]
  float* router_scores = nullptr;    // [R, E]
  int32_t* group_ids = nullptr;      // [R, kept groups]
  int32_t* topk_ids = nullptr;       // [R, K]
  float* topk_weights = nullptr;     // [R, K]
  int32_t* token_of_row = nullptr;   // [L, T]
  int32_t* num_valid = nullptr;      // [L]
  int32_t* row_of_slot = nullptr;    // [T, K]
  fp8_e4m3* packed_codes = nullptr;  // [P, hidden]; null: rows are gathered where they lie, like the next three
  float* packed_scales = nullptr;    // [P / 64, hidden / 128, 64]
  int32_t* group_of_tile = nullptr;  // [P / 64]
  int32_t* rows_of_tile = nullptr;   // [P / 64]
  half16* expert_gate_up = nullptr;  // [P, 2 * padded dim]
  half16* expert_act = nullptr;      // [P, padded dim]
  fp8_e4m3* expert_codes = nullptr;  // [P, padded dim]
  float* expert_scales = nullptr;    // [L, padded dim / 128, T]; packed: [P / 64, padded dim / 128, 64]
  half16* expert_rows = nullptr;     // [P, hidden]
  float* expert_sums = nullptr;  // [P, hidden]: of the rank's slices, where experts are cut; in place of expert_rows
  // What other ranks sent, and what they sent back; null when the rank has all experts.
  half16* received = nullptr;           // [T, hidden], of BF16 models
  fp8_e4m3* received_codes = nullptr;   // [T, hidden]
  float* received_scales = nullptr;     // [ceil(hidden / 128), T]
  int32_t* received_experts = nullptr;  // [T, K]: counted from the rank's first; -1: elsewhere
  half16* returned_rows =
      nullptr;  // [R, K, hidden]; null, like what follows, where outputs are read on the ranks that have them
  float* returned_sums = nullptr;     // [slices, R, K, hidden], where experts are cut
  int32_t* returned_slots = nullptr;  // [R, K]: 0, 1, 2, ...

  float* partial_sums = nullptr;  // of linears whose K is split
  int32_t* arrivals = nullptr;    // zero between launches

  // Of linears whose K tensor-parallel ranks share; null for one rank.
  float* own_sums = nullptr;  // [R, hidden]
  float* all_sums = nullptr;  // [ranks, R, hidden]

  // Results.
  half16* main_state = nullptr;  // [num_state_rows(), hidden]: final_norm; behind it what Engine::keep_states() kept
  half16* mtp_state = nullptr;   // [R, hidden]: mtp.k.norm of the MTP layer that ran last
  half16* gathered = nullptr;    // [R, hidden]
  float* logits = nullptr;       // [H, vocab of all ranks]
  float* own_logits = nullptr;   // [H, vocab]: the rank's, where several have them
  float* all_logits = nullptr;   // [ranks, H, vocab]

  SamplerRow* sampler_rows = nullptr;  // [H]
  uint8_t* is_in_prompt = nullptr;     // [H, vocab]
  int32_t* num_generated = nullptr;    // [H, vocab]
  double* sampler_weights = nullptr;   // [H, vocab]
  int32_t* sampled = nullptr;          // [H]

  int64_t partial_len = 0;      // of partial_sums
  int64_t arrivals_len = 0;     // of arrivals
  int64_t max_expert_rows = 0;  // T
};

// Into how many parts the kernels cut K of a linear: by its shape alone, so that a token's bits do not depend on the batch. Enough for a
// tile for each of a Hopper's 132 multiprocessors, but not so many that eight tokens' partial sums exceed a twentieth of the FP8 weights.
int num_splits_of(int64_t out_dim, int64_t in_dim, int num_groups);

}  // namespace gpu
