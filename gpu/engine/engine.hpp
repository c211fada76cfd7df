// One rank of the model on a device: weights, paged latent cache, and steps of ragged batches. What to run is its caller's business
// (gpu/engine/scheduler.hpp, tools). Of several ranks each has an engine, and all make the same calls in the same order: those of one
// data-parallel rank with the same inputs, others with their own, which may be empty.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"
#include "gpu/engine/device_weights.hpp"
#include "gpu/engine/forward.hpp"
#include "gpu/engine/observer.hpp"
#include "gpu/engine/ranks.hpp"
#include "gpu/engine/shard.hpp"
#include "gpu/engine/weight_loader.hpp"
#include "gpu/engine/workspace.hpp"
#include "model/parallel_plan.hpp"
#include "model/probe.hpp"
#include "model/weight_source.hpp"

namespace gpu {

struct EngineOptions {
  StepLimits limits = {};
  int64_t num_pages = 0;      // of the latent cache, shared by all sequences
  bool ue8m0_scales = false;  // activation scales are powers of two
  // The residual stream divided by routed_scaling_factor: what gives it room where the back end's kernels compute in FP16.
  bool scaled_stream = false;
  bool fp8_cache = false;  // the latent cache in FlashMLA's FP8 form
  model::ParallelLayout layout = {};
  model::ExpertSlots expert_of_slot = {};  // where the routed experts and their copies lie; empty: in order
  comm::Communicator* world =
      nullptr;  // the layout's ranks in the order of its plan; must outlive the engine; null: one rank
  comm::Communicator* links =
      nullptr;  // the same ranks; tensors of the device go there, on the back end's stream (NCCL); null: the
                // hosts exchange them, through `world`
  // Kernels take tokens to their experts on other ranks and read what these made of them there, where experts are whole. The ranks'
  // devices are peers (emulation::Options). Otherwise the host does it.
  bool exchanges_by_kernels = false;
  int64_t num_micro_batches = 1;  // that the sequences of a step are split into, so that stages work at the same time
  bool use_graphs = false;        // steps in which every sequence decodes are captured once for each padded shape
  std::function<void(const std::string& text)> on_plan = {};  // the memory plan, before anything is allocated
  WeightLoader::OnProgress on_progress = {};
};

struct StepInput {
  std::vector<StepSequence> sequences = {};  // those that decode first
  std::vector<int32_t> tokens = {};          // of all sequences, one after another
  std::vector<int32_t> head_rows = {};       // rows whose logits are wanted
};

// An MTP layer's step: row i reads row state_rows[i] of the main model's final_norm or kept states, or of what the last MTP step gave.
struct MtpInput {
  int64_t layer = 0;
  bool reads_main_state = true;
  std::vector<int32_t> state_rows = {};
};

// Who watches a step; it then runs op by op.
struct Watch {
  model::Probe* probe =
      nullptr;  // shown what it wants; attention in the expanded form if a sequence prefills, else absorbed
  std::vector<OpTime>* times = nullptr;
};

class Engine {
 public:
  // `source` must outlive the constructor. Throws InputError when the kernels cannot run the model, naming what and why, when a tensor
  // has a format that they do not read, when the layout is none that the engine runs, or when the device's memory is too small.
  Engine(const model::WeightSource& source, std::unique_ptr<Backend> backend, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Appends the new rows to the cache and leaves the logits of head_rows, which ascend. A step that a probe watches is one micro-batch.
  void run_main(const StepInput& input, const Watch& watch = {});
  void run_mtp(const MtpInput& mtp, const StepInput& input, const Watch& watch = {});

  // Of the last step: [num head rows, vocab].
  [[nodiscard]] std::vector<float> logits();
  // One token for each head row. Penalties look at what was in the prompt and what was generated, [num head rows, vocab] each; empty
  // where no row has a penalty.
  [[nodiscard]] std::vector<int32_t> sample(std::span<const SamplerRow> rows,
                                            std::span<const uint8_t> is_in_prompt = {},
                                            std::span<const int32_t> num_generated = {});

  // True on every rank if it is on one of them. Collective.
  [[nodiscard]] bool on_any_rank(bool mine) const;

  // Copies rows of the main model's state in order, into rows from limits.first_kept_state() on, where they stay for later MTP steps. `from` may
  // name such rows too.
  void keep_states(std::span<const int32_t> from, std::span<const int32_t> to);

  // Copies whole pages of every layer.
  void copy_pages(std::span<const int32_t> from, std::span<const int32_t> to);

  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  [[nodiscard]] const EngineOptions& options() const { return options_; }
  [[nodiscard]] const Shard& shard() const { return shard_; }
  // What this rank sent and computed for the routed experts; null when it has all of them.
  [[nodiscard]] const comm::TokenExchange* exchange() const { return ranks_.exchange.get(); }

 private:
  // The inputs of a step as they are uploaded; kept until the device has read them.
  struct Staging {
    std::vector<int32_t> tokens;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    std::vector<int32_t> block_table;
    std::vector<int32_t> num_keys;
    std::vector<int32_t> first_token;
    std::vector<int64_t> key_slots;
    std::vector<int32_t> first_key_row;
    std::vector<int32_t> first_key;
    std::vector<int32_t> state_rows;
    std::vector<int32_t> head_rows;
  };

  void check_input(const StepInput& input) const;
  // Padded: the shape of a graph, the same for every step that fits into it. `first_row`: as in the result.
  [[nodiscard]] StepShape shape_of(const StepInput& input,
                                   bool padded,
                                   int64_t first_row,
                                   int64_t first_head_row) const;
  void upload(const StepInput& input, const MtpInput* mtp, const StepShape& shape);
  void launch(const StepInput& input,
              const MtpInput* mtp,
              const Watch& watch,
              int64_t first_row = 0,
              int64_t first_head_row = 0);
  // Of a step that was launched: others wait for what this rank sends, also where it wants nothing of the step for itself.
  void finish(const StepInput& input);

  [[nodiscard]] int rank() const { return options_.world != nullptr ? options_.world->rank() : 0; }

  model::ModelConfig config_;
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  Shard shard_;
  Ranks ranks_;
  DeviceWeights weights_;
  LatentCache cache_;
  std::unique_ptr<Workspace> workspace_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<Forward> forward_;
  Staging staging_;
  std::map<std::pair<std::vector<int64_t>, StepShape>, int> graphs_;  // by MTP layer and source of its state, and shape
  int64_t num_head_rows_ = 0;
};

}  // namespace gpu
