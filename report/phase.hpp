// Which part of the model an op belongs to: the groups that a report adds times up by.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "model/op_record.hpp"

namespace report {

enum class Phase {
  kEmbedding,
  kAttention,
  kDense,
  kRouter,
  kExperts,
  kAllToAll,
  kWaiting,  // for the slowest rank of a MoE layer: what skew costs
  kAllReduce,
  kNorms,  // norms and residual sums
  kHead,
  kMtp,
  kEngine,  // host, launches, what kernels lose in a stream
  kOther,
};

inline constexpr std::array kPhases{Phase::kEmbedding,
                                    Phase::kAttention,
                                    Phase::kDense,
                                    Phase::kRouter,
                                    Phase::kExperts,
                                    Phase::kAllToAll,
                                    Phase::kWaiting,
                                    Phase::kAllReduce,
                                    Phase::kNorms,
                                    Phase::kHead,
                                    Phase::kMtp,
                                    Phase::kEngine,
                                    Phase::kOther};

// "embedding", "attention", ...
std::string_view phase_name(Phase phase);
// By the op's id, as model/op_list and simulator/walk write it.
Phase phase_of(std::string_view op, std::string_view kind);

// The rows of one token's journey: embedding, the dense layers, the MoE layers split, the head, MTP.
enum class JourneyRow {
  kEmbedding,
  kDenseLayers,
  kQkv,
  kAttention,
  kOutputProjection,
  kRouter,
  kExperts,
  kDispatchCombine,
  kWaiting,
  kAllReduce,
  kNorms,
  kHead,
  kMtp,
  kEngine,
};

inline constexpr std::array kJourneyRows{JourneyRow::kEmbedding,
                                         JourneyRow::kDenseLayers,
                                         JourneyRow::kQkv,
                                         JourneyRow::kAttention,
                                         JourneyRow::kOutputProjection,
                                         JourneyRow::kRouter,
                                         JourneyRow::kExperts,
                                         JourneyRow::kDispatchCombine,
                                         JourneyRow::kWaiting,
                                         JourneyRow::kAllReduce,
                                         JourneyRow::kNorms,
                                         JourneyRow::kHead,
                                         JourneyRow::kMtp,
                                         JourneyRow::kEngine};

std::string_view journey_row_name(JourneyRow row);
// `is_dense_layer`: the op's layer has no experts.
JourneyRow journey_row_of(std::string_view op, Phase phase, bool is_dense_layer);

// "layer.3.attn.q_a" and "mtp.0.layer.attn.q_a" -> "attn.q_a"; "cache.3.latent" -> "cache.latent"; others as they are.
std::string id_in_layer(std::string_view op);
// "layer.3.moe.expert.7.gate" -> "layer.3.moe.expert.*.gate"; others as they are.
std::string grouped_id(std::string_view op);

enum class Lane { kCompute, kNvlink, kNetwork, kHost };
// What a step keeps busy. `crosses_domains`: its ranks are in more than one NVLink domain.
Lane lane_of(Phase phase, std::string_view kind, bool crosses_domains);

}  // namespace report
