#include "report/phase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "model/check.hpp"

namespace report {
namespace {

constexpr std::array kPhaseNames{std::pair{Phase::kEmbedding, "embedding"},
                                 std::pair{Phase::kAttention, "attention"},
                                 std::pair{Phase::kDense, "dense"},
                                 std::pair{Phase::kRouter, "router"},
                                 std::pair{Phase::kExperts, "experts"},
                                 std::pair{Phase::kAllToAll, "all-to-all"},
                                 std::pair{Phase::kWaiting, "waiting"},
                                 std::pair{Phase::kAllReduce, "all-reduce"},
                                 std::pair{Phase::kNorms, "norms"},
                                 std::pair{Phase::kHead, "head"},
                                 std::pair{Phase::kMtp, "MTP"},
                                 std::pair{Phase::kEngine, "engine"},
                                 std::pair{Phase::kOther, "other"}};

constexpr std::array kJourneyNames{std::pair{JourneyRow::kEmbedding, "embedding"},
                                   std::pair{JourneyRow::kDenseLayers, "dense layers"},
                                   std::pair{JourneyRow::kQkv, "MoE layers: q, k, v"},
                                   std::pair{JourneyRow::kAttention, "MoE layers: attention"},
                                   std::pair{JourneyRow::kOutputProjection, "MoE layers: o_proj"},
                                   std::pair{JourneyRow::kRouter, "MoE layers: router"},
                                   std::pair{JourneyRow::kExperts, "MoE layers: experts"},
                                   std::pair{JourneyRow::kDispatchCombine, "MoE layers: dispatch, combine"},
                                   std::pair{JourneyRow::kWaiting, "MoE layers: waiting (skew)"},
                                   std::pair{JourneyRow::kAllReduce, "all-reduce, gather, send"},
                                   std::pair{JourneyRow::kNorms, "MoE layers: norms, residuals"},
                                   std::pair{JourneyRow::kHead, "head"},
                                   std::pair{JourneyRow::kMtp, "MTP"},
                                   std::pair{JourneyRow::kEngine, "engine"}};

template <typename Names, typename Key>
std::string_view name_in(const Names& names, Key key) {
  const auto found = std::ranges::find(names, key, [](const auto& entry) { return entry.first; });
  CHECK(found != names.end());
  return found->second;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::string_view phase_name(Phase phase) {
  return name_in(kPhaseNames, phase);
}

std::string_view journey_row_name(JourneyRow row) {
  return name_in(kJourneyNames, row);
}

Phase phase_of(std::string_view op, std::string_view kind) {
  if (op.starts_with("bench.")) {
    // "bench.v3.attn.q_a": an op alone, of some layer.
    return phase_of(fmt::format("layer.0.{}", op.substr(std::min(op.find('.', 6), op.size() - 1) + 1)), kind);
  }
  if (op.starts_with("mtp.")) {
    return Phase::kMtp;
  }
  if (op.starts_with("engine.")) {
    return Phase::kEngine;
  }
  if (kind == "waiting") {
    return Phase::kWaiting;
  }
  if (kind == "all_to_all" || op.ends_with(".moe.dispatch") || op.ends_with(".moe.combine")) {
    return Phase::kAllToAll;
  }
  if (kind == "all_reduce" || kind == "all_gather" || kind == "reduce_scatter" || kind == "send") {
    return Phase::kAllReduce;
  }
  if (op == "embed") {
    return Phase::kEmbedding;
  }
  if (op == "logits") {
    return Phase::kHead;
  }
  if (op.ends_with("attn_norm") || op.ends_with("ffn_norm") || op == "final_norm" || op.ends_with("attn_residual") ||
      (op.starts_with("layer.") && op.ends_with(".output"))) {
    return Phase::kNorms;
  }
  if (has(op, ".attn.") || op.starts_with("cache.")) {
    return Phase::kAttention;
  }
  if (has(op, ".moe.expert.") || has(op, ".moe.shared") || op.ends_with(".moe.routed") || kind == "moe_output") {
    return Phase::kExperts;
  }
  if (has(op, ".moe.")) {
    return Phase::kRouter;
  }
  if (has(op, ".mlp.") || op.ends_with(".ffn")) {
    return Phase::kDense;
  }
  return Phase::kOther;
}

JourneyRow journey_row_of(std::string_view op, Phase phase, bool is_dense_layer) {
  switch (phase) {
    case Phase::kEmbedding: return JourneyRow::kEmbedding;
    case Phase::kHead: return JourneyRow::kHead;
    case Phase::kMtp: return JourneyRow::kMtp;
    case Phase::kEngine:
    case Phase::kOther: return JourneyRow::kEngine;
    case Phase::kAllReduce: return JourneyRow::kAllReduce;
    default: break;
  }
  if (op == "final_norm") {
    return JourneyRow::kHead;
  }
  if (is_dense_layer) {
    return JourneyRow::kDenseLayers;
  }
  switch (phase) {
    case Phase::kRouter: return JourneyRow::kRouter;
    case Phase::kAllToAll: return JourneyRow::kDispatchCombine;
    case Phase::kWaiting: return JourneyRow::kWaiting;
    case Phase::kNorms: return JourneyRow::kNorms;
    case Phase::kAttention: break;
    default: return JourneyRow::kExperts;
  }
  if (op.ends_with(".o_proj")) {
    return JourneyRow::kOutputProjection;
  }
  constexpr std::array<std::string_view, 4> kCore{".attn.probs", ".attn.lse", ".attn.o_latent", ".attn.context"};
  const bool is_core = std::ranges::any_of(kCore, [&](std::string_view part) { return op.ends_with(part); });
  return is_core ? JourneyRow::kAttention : JourneyRow::kQkv;
}

std::string id_in_layer(std::string_view op) {
  const auto behind_number = [&](std::string_view prefix) {
    return std::string(op.substr(std::min(op.find('.', prefix.size()), op.size() - 1) + 1));
  };
  if (op.starts_with("layer.")) {
    return behind_number("layer.");
  }
  if (op.starts_with("cache.")) {
    return "cache." + behind_number("cache.");
  }
  if (op.starts_with("mtp.")) {
    const std::string rest = behind_number("mtp.");
    return rest.starts_with("layer.") ? rest.substr(6) : rest;
  }
  return std::string(op);
}

std::string grouped_id(std::string_view op) {
  constexpr std::string_view kExpert = ".moe.expert.";
  const size_t found = op.find(kExpert);
  if (found == std::string_view::npos) {
    return std::string(op);
  }
  const size_t begin = found + kExpert.size();
  const size_t end = std::min(op.find('.', begin), op.size());
  return std::string(op.substr(0, begin)) + "*" + std::string(op.substr(end));
}

Lane lane_of(Phase phase, std::string_view kind, bool crosses_domains) {
  switch (phase) {
    case Phase::kEngine: return Lane::kHost;
    case Phase::kAllToAll:
    case Phase::kWaiting:
    case Phase::kAllReduce: return kind == "send" || crosses_domains ? Lane::kNetwork : Lane::kNvlink;
    default: return Lane::kCompute;
  }
}

}  // namespace report
