// The launches of a step, in order: one method for each part of the model. Reads what the engine put into the workspace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"
#include "gpu/engine/device_weights.hpp"
#include "gpu/engine/latent_cache.hpp"
#include "gpu/engine/observer.hpp"
#include "gpu/engine/ranks.hpp"
#include "gpu/engine/shard.hpp"
#include "gpu/engine/stream_units.hpp"
#include "gpu/engine/workspace.hpp"
#include "gpu/kernels/quantize_block.cuh"
#include "model/config.hpp"

namespace gpu {

// What the launches of a step depend on; everything else is read on the device. Two steps of one shape are the same launches.
struct StepShape {
  int64_t num_rows = 0;
  int64_t num_decode_rows = 0;  // the first ones: of sequences that decode
  int64_t num_decoding = 0;     // sequences
  int64_t num_decode_splits = 0;
  int64_t num_prefilling = 0;  // sequences, behind those that decode
  int64_t max_prefill_new = 0;
  int64_t num_prefill_keys = 0;
  int64_t num_head_rows = 0;
  int64_t first_row = 0;  // of a micro-batch, among those of the whole step: where its states and logits lie
  int64_t first_head_row = 0;

  auto operator<=>(const StepShape&) const = default;
};

class Forward {
 public:
  // All must outlive this.
  Forward(const model::ModelConfig& config,
          const Shard& shard,
          const Ranks& ranks,
          const DeviceWeights& weights,
          const Workspace& workspace,
          const LatentCache& cache,
          const StepLimits& limits,
          ScaleFormat scale_format,
          const StreamUnits& units,
          Backend& backend,
          Observer& observer);

  // From tokens to main_state, and the logits of head_rows; on a stage of several, from and to its neighbours.
  void run_main(const StepShape& shape);
  // MTP layer k: from state_rows of `states`, and tokens, to mtp_state, and the logits of head_rows. The last stage's alone.
  void run_mtp(int64_t k, const half16* states, const StepShape& shape);

 private:
  // One layer under way: names of its ops, its weights, its place in the cache.
  struct Layer {
    std::string name;
    const LayerWeights& weights;

    size_t index;  // in the cache
    std::string cache_id;
  };

  void run_layer(const Layer& layer, bool has_residual, const StepShape& shape);
  void run_query(const Layer& layer, int64_t rows);
  void write_cache(const Layer& layer, int64_t rows);
  void run_absorbed(const Layer& layer, const StepShape& shape);
  void run_expanded(const Layer& layer, const StepShape& shape);
  void run_output(const Layer& layer, int64_t rows);
  // `out_id`: the op that the down projection computes.
  void run_mlp(const std::string& name, const MlpWeights& mlp, int64_t rows, half16* out, const std::string& out_id);
  // What the rank's experts work on: tokens of the step, or those that other ranks sent.
  struct ExpertInput {
    const half16* x = nullptr;
    const fp8_e4m3* codes = nullptr;
    const float* scales = nullptr;
    const int32_t* experts = nullptr;  // that each of them chose, as align had them
    int64_t num_rows = 0;
  };
  // The rows that the experts make of them: each group has room for max_rows, of which num_rows exist.
  struct ExpertRows {
    int num_groups = 0;
    int64_t max_rows = 0;
    const int32_t* num_rows = nullptr;
  };

  void run_router(const Layer& layer, int64_t rows);
  ExpertInput exchange_tokens(const Layer& layer, int64_t rows);
  void align(const int32_t* experts, int64_t rows);
  void run_moe(const Layer& layer, int64_t rows);
  // Experts' tokens as tiles of one expert each, for wgmma; otherwise experts find them where they are.
  [[nodiscard]] bool packs_experts() const { return ws_.packed_codes != nullptr; }
  [[nodiscard]] int64_t num_packed_tiles(int64_t rows) const;
  void pack(const ExpertInput& input);
  void expert_linear(const LinearWeight& weight, const ExpertInput* input, half16* y, float* y_f32, int64_t rows);
  void packed_expert_linear(const LinearWeight& weight, bool is_first, half16* y, float* y_f32, int64_t rows);
  void take_back(Shard::Share own);
  void combine(const Layer& layer, int64_t rows);
  void join_logits(float* logits, int64_t rows);
  void run_head(const std::string& id, const half16* states, const LinearWeight& head, const StepShape& shape);

  // The norm of x, after adding the residual if there is one, into out and, for FP8 linears, codes: of the rank's rows of the stream.
  void norm(const half16* gain, bool adds_residual, bool quantizes, half16* out, int64_t rows);
  // All rows on every rank, where each has normed its own.
  void join_rows(half16* values, int64_t rows);
  void join_normed(int64_t rows);
  // Where a linear's sums go: times factor and rounded into y, or as they are into y_f32.
  struct Output {
    half16* y = nullptr;
    float* y_f32 = nullptr;
    float factor = 1;
  };
  // normed, or codes and scales, times W^T. FP8: rows from num_decode_rows on by wgmma, on a device that
  // has it.
  void linear(const LinearWeight& weight, const half16* x, const Output& out, int64_t rows, int64_t num_decode_rows);
  void bf16_linear(const LinearWeight& weight, const half16* x, const Output& out, int64_t rows);
  void gather(const half16* from, const int32_t* rows_of, half16* to, int64_t rows);
  void embed(const half16* table, int64_t rows);
  // The same into the residual stream, in its units. Where tensor-parallel ranks each have a part of K, their FP32 sums are gathered and
  // added in one order. A sequence-parallel rank gets and adds those of its own rows alone.
  void shared_linear(const LinearWeight& weight, const half16* x, half16* y, int64_t rows);
  void send_to_next_stage(int64_t rows);
  void receive_from_stage_before(int64_t rows);
  void show_experts(const Layer& layer, int64_t rows);
  void show_outputs_of_slices(const Layer& layer, Shard::Share own);

  const model::ModelConfig& config_;
  const Shard& shard_;
  const Ranks& ranks_;
  const DeviceWeights& weights_;
  const Workspace& ws_;
  const LatentCache& cache_;
  const StepLimits& limits_;
  ScaleFormat scale_format_;
  StreamUnits units_;
  float softmax_scale_;
  Backend& backend_;
  comm::Element half_;  // as communicators call half16
  Observer& observer_;
  int64_t num_decode_rows_ = 0;  // of the step under way
};

}  // namespace gpu
