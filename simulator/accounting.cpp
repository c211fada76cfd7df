#include "simulator/accounting.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "model/check.hpp"
#include "model/parallel_plan.hpp"
#include "simulator/routing.hpp"

namespace simulator {
namespace {

using model::CatalogTensor;

int64_t tensor_bytes(const CatalogTensor& tensor) {
  return model::num_elements(tensor.shape) * model::dtype_bytes(tensor.dtype);
}

bool is_tied(const DescribedModel& described) {
  return std::visit([](const auto& config) { return config.tie_word_embeddings; }, described.config);
}

int64_t experts_on_fullest(const DescribedModel& described, int64_t ep) {
  return (described.num_experts + ep - 1) / ep;
}

}  // namespace

std::string_view component_name(Component component) {
  switch (component) {
    case Component::kEmbedding: return "embedding";
    case Component::kAttention: return "attention";
    case Component::kDenseFfn: return "dense_ffn";
    case Component::kRouter: return "router";
    case Component::kRoutedExperts: return "routed_experts";
    case Component::kSharedExperts: return "shared_experts";
    case Component::kNorms: return "norms";
    case Component::kHead: return "head";
    case Component::kMtp: return "mtp";
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown component");
}

Component component_of(const CatalogTensor& tensor, int64_t num_layers) {
  const auto has = [&](std::string_view part) { return tensor.name.find(part) != std::string::npos; };
  if (tensor.layer >= num_layers) {
    return Component::kMtp;
  }
  if (tensor.layer < 0) {
    return has("embed_tokens") ? Component::kEmbedding : has("lm_head") ? Component::kHead : Component::kNorms;
  }
  if (tensor.expert >= 0) {
    return Component::kRoutedExperts;
  }
  if (has(".self_attn.")) {
    return Component::kAttention;
  }
  if (has(".mlp.shared_experts.")) {
    return Component::kSharedExperts;
  }
  if (has(".mlp.gate.")) {
    return Component::kRouter;
  }
  return has(".mlp.") ? Component::kDenseFfn : Component::kNorms;
}

Amount& Amount::operator+=(const Amount& other) {
  weights += other.weights;
  fp8_bytes += other.fp8_bytes;
  bf16_bytes += other.bf16_bytes;
  return *this;
}

Amount Amount::share(int64_t taken, int64_t parts) const {
  CHECK(parts > 0 && weights % parts == 0 && fp8_bytes % parts == 0 && bf16_bytes % parts == 0);
  return {weights / parts * taken, fp8_bytes / parts * taken, bf16_bytes / parts * taken};
}

std::vector<ComponentCount> count_components(const DescribedModel& described) {
  std::map<Component, Amount> amounts;
  for (const CatalogTensor& tensor : described.bf16_tensors) {
    amounts[component_of(tensor, described.num_layers)] +=
        {.weights = model::num_elements(tensor.shape), .bf16_bytes = tensor_bytes(tensor)};
  }
  for (const CatalogTensor& tensor : described.fp8_tensors) {
    amounts[component_of(tensor, described.num_layers)] += {.fp8_bytes = tensor_bytes(tensor)};
  }
  std::vector<ComponentCount> counts;
  for (const Component component : kComponents) {
    const auto found = amounts.find(component);
    if (found == amounts.end()) {
      continue;
    }
    ComponentCount count{.component = component, .all = found->second, .active = {}, .always = {}};
    if (component == Component::kRoutedExperts) {
      count.active = count.all.share(described.experts_per_token, described.num_experts);
    } else if (component != Component::kMtp) {
      count.active = count.all;
      count.always = component == Component::kEmbedding && !is_tied(described) ? Amount{} : count.all;
    }
    counts.push_back(count);
  }
  return counts;
}

WeightTotals weight_totals(const DescribedModel& described) {
  WeightTotals totals;
  int64_t num_embedding = 0;
  int64_t num_head = 0;
  for (const ComponentCount& count : count_components(described)) {
    if (count.component == Component::kMtp) {
      totals.num_mtp = count.all.weights;
      continue;
    }
    totals.all += count.all;
    totals.active += count.active;
    totals.always += count.always;
    switch (count.component) {
      case Component::kRoutedExperts:
        totals.routed = count.all;
        totals.expert = count.all.share(1, described.num_moe_layers * described.num_experts);
        break;
      case Component::kAttention: totals.attention_weights_per_layer = count.all.weights / described.num_layers; break;
      case Component::kEmbedding: num_embedding = count.all.weights; break;
      case Component::kHead: num_head = count.all.weights; break;
      default: break;
    }
  }
  totals.num_active_without_embedding = totals.active.weights - (is_tied(described) ? 0 : num_embedding);
  totals.num_active_without_tables = totals.active.weights - num_embedding - num_head;
  return totals;
}

StepRead step_read(const DescribedModel& described, const WeightTotals& totals, int64_t num_tokens) {
  const double num_active = expected_active_experts(described.num_experts, described.experts_per_token, num_tokens);
  const double num_experts = num_active * static_cast<double>(described.num_moe_layers);
  StepRead read{.num_active_experts = num_active,
                .expert_weights = num_experts * static_cast<double>(totals.expert.weights),
                .expert_fp8_bytes = num_experts * static_cast<double>(totals.expert.fp8_bytes),
                .expert_bf16_bytes = num_experts * static_cast<double>(totals.expert.bf16_bytes)};
  read.num_weights = static_cast<double>(totals.all.weights - totals.routed.weights) + read.expert_weights;
  read.fp8_bytes = static_cast<double>(totals.all.fp8_bytes - totals.routed.fp8_bytes) + read.expert_fp8_bytes;
  read.bf16_bytes = static_cast<double>(totals.all.bf16_bytes - totals.routed.bf16_bytes) + read.expert_bf16_bytes;
  return read;
}

GpuWeights gpu_weights(const DescribedModel& described, const WeightTotals& totals, int64_t ep) {
  CHECK(ep > 0);
  GpuWeights weights{.ep = ep, .experts_per_gpu = experts_on_fullest(described, ep)};
  const int64_t num_experts = weights.experts_per_gpu * described.num_moe_layers;
  weights.simple_gb = std::round(static_cast<double>(totals.all.weights - totals.routed.weights) / 1e9) +
                      static_cast<double>(num_experts * totals.expert.weights) / 1e9;
  const int64_t num_elsewhere = described.num_experts * described.num_moe_layers - num_experts;
  weights.fp8_bytes = totals.all.fp8_bytes - num_elsewhere * totals.expert.fp8_bytes;
  weights.bf16_bytes = totals.all.bf16_bytes - num_elsewhere * totals.expert.bf16_bytes;
  return weights;
}

// Source: DeepSeek-V3 technical report (arXiv 2412.19437) 3.4: attention TP4 in both phases. Prefill on 32 GPUs, 8 experts and a
// redundant one on each. Decode on 320, one expert on each; 64 of the GPUs host redundant and shared experts, so no other GPU
// holds a shared one. Dense layers and tables are counted whole.
std::vector<ReportedDeployment> reported_deployments(const DescribedModel& described, const WeightTotals& totals) {
  const model::ModelConfig* config = described.mla_config();
  if (config == nullptr || config->n_routed_experts != 256 || config->n_shared_experts != 1 ||
      config->num_attention_heads != 128) {
    return {};
  }
  std::vector<ReportedDeployment> deployments{
      {.name = "prefill", .ep = 32, .attention_tp = 4, .experts_per_gpu = 9, .has_shared_expert = true},
      {.name = "decode", .ep = 320, .attention_tp = 4, .experts_per_gpu = 1, .has_shared_expert = false}};
  for (ReportedDeployment& deployment : deployments) {
    model::ModelConfig fp8_config = *config;
    fp8_config.quantization = config->quantization.value_or(model::QuantizationConfig{});
    const model::ParallelPlan plan =
        model::parallel_plan(fp8_config, {.tp = deployment.attention_tp, .ep = deployment.attention_tp});
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const Component component = component_of(plan.tensors[i], described.num_layers);
      const bool elsewhere = component == Component::kMtp || component == Component::kRoutedExperts ||
                             (component == Component::kSharedExperts && !deployment.has_shared_expert);
      const int64_t degree = component == Component::kAttention ? plan.splits[i].degree : 1;
      deployment.fp8_bytes += elsewhere ? 0 : tensor_bytes(plan.tensors[i]) / degree;
    }
    deployment.fp8_bytes += deployment.experts_per_gpu * described.num_moe_layers * totals.expert.fp8_bytes;
  }
  return deployments;
}

}  // namespace simulator
