// One decode step or one prompt on the slowest rank of a deployment, as a list of leaves that add up to the whole.
// A point costs microseconds: leaves are sizes times constants, nothing walks the layers.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/parallel_plan.hpp"
#include "simulator/calibration.hpp"
#include "simulator/engine.hpp"
#include "simulator/hardware.hpp"
#include "simulator/moe_curve.hpp"
#include "simulator/op_fit.hpp"

namespace simulator {

enum class StepPart {
  kAttentionFixed,
  kAttentionProjections,
  kAttentionCache,  // in prefill: scores and values of the prompt
  kRouter,
  kExpertsFixed,
  kExperts,
  kSharedExpert,
  kDenseFfn,
  kHead,
  kAllReduce,
  kDispatch,
  kCombine,
  kWaiting,  // of the average rank for the slowest, layer by layer
  kPipelineSend,
  kDrafting,  // MTP layers and their heads
  kInStream,  // what kernels take longer in the stream than alone
  kEarlyEngine,
  kLaunches,  // without CUDA graphs
  kHost,
  kHidden,  // all-to-all behind computation: negative
};

struct StepPartInfo {
  StepPart part;
  std::string_view group;  // "attention", "ffn", "head", "communication", "engine"
  std::string_view name;
  std::string_view formula;
};

const StepPartInfo& step_part_info(StepPart part);

struct StepLeaf {
  StepPart part = StepPart::kHost;
  double count = 1;  // calls in the step
  double each_us = 0;
  OpWork work = {};  // of one call
  double floor_each_us = 0;
  std::optional<OpFamily> family = {};  // whose constants were used
  std::string_view source = {};         // of a time that no family has; lives as long as the curves

  [[nodiscard]] double total_us() const { return count * each_us; }
};

struct StepCost {
  std::vector<StepLeaf> leaves;
  double total_us = 0;  // of the leaves in their order
  double floor_us = 0;
};

// The weighted sum of costs, part by part.
StepCost weighted_sum(std::span<const StepCost> costs, double weight);

enum class KvDtype { kBf16, kFp8 };

struct RankLayout {
  model::ParallelLayout layout;
  int64_t redundant_experts = 0;
  bool eplb = false;
  std::optional<AllToAllBackend> backend = {};  // of decode; absent: what the engine uses on this hardware
  bool two_batch_overlap = false;
  bool cuda_graph = true;
  bool early_engine = false;  // a release of 2025
  KvDtype kv_dtype = KvDtype::kBf16;
  int64_t mtp_depth = 0;
};

// Tokens that one DP rank works on.
struct DecodePoint {
  double sequences = 1;
  double kv_len = 0;
};

class StepModel {
 public:
  // All arguments are copied. `curves` has to outlive the model.
  StepModel(const model::ModelConfig& config,
            const Hardware& hardware,
            const std::vector<ChosenFit>& fits,
            const EngineProfile& engine,
            const RankLayout& rank,
            MoeCurves& curves);

  [[nodiscard]] StepCost decode(const DecodePoint& point) const;
  // `new_tokens` of a prompt behind `num_cached`, fed by every DP rank at once.
  [[nodiscard]] StepCost prefill(double num_cached, double new_tokens) const;

  [[nodiscard]] const RankLayout& rank() const { return rank_; }
  [[nodiscard]] const Hardware& hardware() const { return hardware_; }
  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  [[nodiscard]] const EngineProfile& engine() const { return engine_; }
  [[nodiscard]] std::span<const ChosenFit> fits() const { return fits_; }
  // The sum of the MoE layers of a decode step, sampled with each layer's own popularity.
  [[nodiscard]] std::vector<MoeLayerTime> sampled_moe(const DecodePoint& point, int64_t num_steps) const;
  // One step of those, rank by rank: [MoE layers][ranks of the EP group].
  [[nodiscard]] std::vector<std::vector<MoeRankTime>> sampled_ranks(const DecodePoint& point) const;
  // More than one NVLink domain in a TP group.
  [[nodiscard]] bool tp_crosses_domains() const;

 private:
  struct Tokens;
  void add(StepCost& cost, StepPart part, double count, OpFamily family, const OpWork& work) const;
  void add_ffn(StepCost& cost, const Tokens& tokens) const;
  void add_collectives(StepCost& cost, const Tokens& tokens) const;
  [[nodiscard]] double all_reduce_us(double message_bytes) const;
  void add_moe(StepCost& cost, const Tokens& tokens) const;
  [[nodiscard]] MoeCurve* curve_of(MoeCurves& curves, AllToAllBackend backend) const;
  [[nodiscard]] Tokens decode_tokens(const DecodePoint& point) const;
  void finish_decode(StepCost& cost, double draft_us) const;

  model::ModelConfig config_;
  Hardware hardware_;
  Peaks peaks_;
  std::vector<ChosenFit> fits_;
  EngineProfile engine_;
  RankLayout rank_;
  MoeCurve* decode_curve_ = nullptr;  // absent without MoE layers
  MoeCurve* prefill_curve_ = nullptr;
  int64_t num_moe_layers_ = 0;
};

}  // namespace simulator
