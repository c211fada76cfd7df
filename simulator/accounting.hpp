// Counts of a model: parameters and bytes by component, what a token and a step touch, what one GPU holds.
// Integers are exact. It knows sizes only: no time, no efficiency.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "simulator/described_model.hpp"

namespace simulator {

enum class Component {
  kEmbedding,
  kAttention,
  kDenseFfn,
  kRouter,
  kRoutedExperts,
  kSharedExperts,
  kNorms,
  kHead,
  kMtp,  // whole MTP layers, with their copies of both tables
};
inline constexpr std::array kComponents{Component::kEmbedding,
                                        Component::kAttention,
                                        Component::kDenseFfn,
                                        Component::kRouter,
                                        Component::kRoutedExperts,
                                        Component::kSharedExperts,
                                        Component::kNorms,
                                        Component::kHead,
                                        Component::kMtp};

std::string_view component_name(Component component);
// Gains inside attention count as attention. num_layers: without MTP layers.
Component component_of(const model::CatalogTensor& tensor, int64_t num_layers);

// FP8: linear weights as codes with FP32 scales of 128x128 blocks, the rest BF16 (router bias FP32). Scales are bytes, not weights.
struct Amount {
  int64_t weights = 0;
  int64_t fp8_bytes = 0;
  int64_t bf16_bytes = 0;

  Amount& operator+=(const Amount& other);
  // Of `parts` equal ones, `taken`. Exact.
  [[nodiscard]] Amount share(int64_t taken, int64_t parts) const;
};

struct ComponentCount {
  Component component = Component::kNorms;
  Amount all;
  Amount active;  // what one token uses: k of the routed experts, all of the rest; none of MTP, which is optional
  Amount always;  // read in every step whatever the batch: not the experts, not the table
};

// One entry for each component that the model has, in the order of kComponents.
std::vector<ComponentCount> count_components(const DescribedModel& described);

// The figures people quote, over the main model (no MTP). With tied embeddings the one table is the head: it always counts.
struct WeightTotals {
  Amount all;
  Amount routed;
  Amount always;
  Amount active;  // both tables counted
  Amount expert;  // one routed expert of one layer
  int64_t num_mtp = 0;
  int64_t num_active_without_embedding = 0;  // the table is looked up: a token reads one row
  int64_t num_active_without_tables = 0;
  int64_t attention_weights_per_layer = 0;  // matrices and the gains inside attention

  [[nodiscard]] double routed_frac() const {
    return static_cast<double>(routed.weights) / static_cast<double>(all.weights);
  }
};

WeightTotals weight_totals(const DescribedModel& described);

// What a step over `num_tokens` tokens reads in expectation, each weight once, routing uniform.
struct StepRead {
  double num_active_experts = 0;  // of a layer
  double num_weights = 0;         // both tables counted
  double fp8_bytes = 0;
  double bf16_bytes = 0;
  double expert_weights = 0;  // of them in routed experts
  double expert_fp8_bytes = 0;
  double expert_bf16_bytes = 0;
};

StepRead step_read(const DescribedModel& described, const WeightTotals& totals, int64_t num_tokens);

// Weights of the GPU that holds most, experts spread over `ep` GPUs and everything else whole on each; no MTP.
struct GpuWeights {
  int64_t ep = 1;
  int64_t experts_per_gpu = 0;  // of a layer
  double simple_gb = 0;         // 1 byte a weight, and what is not a routed expert rounded to whole GB (V3: 17)
  int64_t fp8_bytes = 0;
  int64_t bf16_bytes = 0;
};

GpuWeights gpu_weights(const DescribedModel& described, const WeightTotals& totals, int64_t ep);

// A deployment as the DeepSeek-V3 report describes it, with FP8 weights.
struct ReportedDeployment {
  std::string_view name;
  int64_t ep = 1;
  int64_t attention_tp = 1;
  int64_t experts_per_gpu = 1;  // of a layer, redundant ones included
  bool has_shared_expert = true;
  int64_t fp8_bytes = 0;
};

// Empty unless the model has DeepSeek-V3's experts and heads.
std::vector<ReportedDeployment> reported_deployments(const DescribedModel& described, const WeightTotals& totals);

}  // namespace simulator
