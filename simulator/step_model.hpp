// One decode step or one prompt on the slowest rank of a deployment.
// A point costs microseconds: leaves are sizes times constants, nothing walks the layers.
#pragma once

#include <span>
#include <vector>

#include "model/config.hpp"
#include "simulator/calibration.hpp"
#include "simulator/engine.hpp"
#include "simulator/hardware.hpp"
#include "simulator/moe_curve.hpp"
#include "simulator/rank_layout.hpp"
#include "simulator/step_cost.hpp"

namespace simulator {

// Tokens that one DP rank works on.
struct DecodePoint {
  double sequences = 1;
  double kv_len = 0;
};

// A chunk of a prompt behind what the cache has: on every DP rank at once, or on one alone while the others wait.
struct PrefillPoint {
  double num_cached = 0;
  double new_tokens = 1;
  bool is_alone = false;
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
  [[nodiscard]] StepCost prefill(const PrefillPoint& point) const;

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
  // Of a DP rank, and of the whole EP group.
  struct Tokens {
    double rank = 0;
    double group = 0;
    bool is_prefill = false;
  };
  void add(StepCost& cost, StepPart part, double count, const OpCall& call) const;
  void add_attention(StepCost& cost, const DecodePoint& half) const;
  [[nodiscard]] const ChosenFit& fit_of(OpFamily family) const { return fits_[static_cast<size_t>(family)]; }
  void add_ffn(StepCost& cost, const Tokens& tokens) const;
  void add_collectives(StepCost& cost, const Tokens& tokens) const;
  void add_all_reduce(StepCost& cost, double count, double message_bytes, int64_t num_ranks) const;
  void add_moe(StepCost& cost, const Tokens& tokens) const;
  // A leaf of its own; 0 where a table has the whole time.
  [[nodiscard]] double experts_fixed_us() const;
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
