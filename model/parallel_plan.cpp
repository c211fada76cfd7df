#include "model/parallel_plan.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include "model/check.hpp"

namespace model {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;

// The parts of a layer that tensor parallelism cuts; everything else is whole on every rank. A scale is cut with its weight.
// Source: mapping in convert.py of deepseek-ai/DeepSeek-V3.
struct SplitRule {
  std::string_view name_part;
  int64_t dimension;
  bool by_heads;  // each rank must get whole heads
};

constexpr std::array kSplitRules{
    SplitRule{"embed_tokens.weight", 0, false},
    SplitRule{"lm_head.weight", 0, false},
    SplitRule{"shared_head.head.weight", 0, false},
    SplitRule{"self_attn.q_proj.weight", 0, true},
    SplitRule{"self_attn.q_b_proj.weight", 0, true},
    SplitRule{"self_attn.kv_b_proj.weight", 0, true},
    SplitRule{"self_attn.o_proj.weight", 1, true},
    SplitRule{".gate_proj.weight", 0, false},
    SplitRule{".up_proj.weight", 0, false},
    SplitRule{".down_proj.weight", 1, false},
};

const SplitRule* find_rule(std::string_view name) {
  const auto* found = std::find_if(kSplitRules.begin(), kSplitRules.end(), [&](const SplitRule& rule) {
    return name.find(rule.name_part) != std::string_view::npos;
  });
  return found == kSplitRules.end() ? nullptr : found;
}

// Index i of num_items belongs to part floor(i * num_parts / num_items): the first parts get what does not divide.
IndexRange part_of(int64_t num_items, int64_t num_parts, int64_t part) {
  const auto first = [&](int64_t p) { return (p * num_items + num_parts - 1) / num_parts; };
  return {first(part), first(part + 1)};
}

void check_layout(const ModelConfig& config, const ParallelLayout& layout, bool has_slots) {
  for (const auto& [name, degree] :
       {std::pair{"tp", layout.tp}, {"ep", layout.ep}, {"pp", layout.pp}, {"dp", layout.dp}}) {
    if (degree < 1 || degree > kMaxRanks) {
      throw_input_error("layout: {} {}: expected 1 to {}", name, degree, kMaxRanks);
    }
  }
  if (layout.tp > kMaxRanks / layout.dp || layout.stage_len() > kMaxRanks / layout.pp) {
    throw_input_error(
        "layout: tp {} * dp {} * pp {}: expected at most {} ranks", layout.tp, layout.dp, layout.pp, kMaxRanks);
  }
  if (layout.pp > config.num_hidden_layers) {
    throw_input_error("layout: pp {} exceeds the {} layers", layout.pp, config.num_hidden_layers);
  }
  if (!has_slots && layout.ep > std::max<int64_t>(config.n_routed_experts, 1)) {
    throw_input_error("layout: ep {} exceeds the {} routed experts", layout.ep, config.n_routed_experts);
  }
  if (layout.ep < layout.tp ? layout.tp % layout.ep != 0
                            : layout.ep % layout.tp != 0 || layout.stage_len() % layout.ep != 0) {
    throw_input_error(
        "layout: ep {} with tp {} and dp {}: expected a divisor of tp, or a multiple of tp that divides tp * dp",
        layout.ep,
        layout.tp,
        layout.dp);
  }
  if (layout.sequence_parallel && layout.tp == 1) {
    throw_input_error("layout: sequence_parallel needs tp above 1");
  }
}

void check_slots(const ModelConfig& config, const ParallelLayout& layout, const ExpertSlots& expert_of_slot) {
  const int64_t num_layers = config.num_hidden_layers + config.num_nextn_predict_layers;
  if (static_cast<int64_t>(expert_of_slot.size()) != num_layers) {
    throw_input_error("placement: {} layers, expected {}, MTP layers included", expert_of_slot.size(), num_layers);
  }
  size_t num_slots = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const auto& slots = expert_of_slot[static_cast<size_t>(layer)];
    if (!config.is_moe_layer(layer)) {
      continue;
    }
    num_slots = num_slots == 0 ? slots.size() : num_slots;
    if (slots.size() != num_slots || slots.empty() || static_cast<int64_t>(slots.size()) % layout.ep != 0) {
      throw_input_error("placement: layer {} has {} slots: expected as many in every layer, and a multiple of ep {}",
                        layer,
                        slots.size(),
                        layout.ep);
    }
    std::vector<bool> is_hosted(static_cast<size_t>(config.n_routed_experts));
    for (const int64_t expert : slots) {
      if (expert < 0 || expert >= config.n_routed_experts) {
        throw_input_error(
            "placement: layer {} has expert {}: expected 0 to {}", layer, expert, config.n_routed_experts - 1);
      }
      is_hosted[static_cast<size_t>(expert)] = true;
    }
    if (const auto missing = std::ranges::find(is_hosted, false); missing != is_hosted.end()) {
      throw_input_error("placement: layer {} has no slot for expert {}", layer, missing - is_hosted.begin());
    }
  }
}

// How the weight is cut. Its scale follows, since whole blocks are a condition.
TensorSplit split_weight(const ModelConfig& config,
                         const ParallelLayout& layout,
                         const CatalogTensor& tensor,
                         const SplitRule& rule) {
  const int64_t degree = tensor.expert >= 0 ? layout.expert_tp() : layout.tp;
  const char* degree_name = tensor.expert >= 0 ? "tp / ep" : "tp";
  const int64_t extent = tensor.shape[static_cast<size_t>(rule.dimension)];
  if (degree == 1) {
    return {};
  }
  if (rule.by_heads && config.num_attention_heads % degree != 0) {
    throw_input_error("{}: {} {} does not divide the {} heads of dimension {} ({})",
                      tensor.name,
                      degree_name,
                      degree,
                      config.num_attention_heads,
                      rule.dimension,
                      extent);
  }
  if (extent % degree != 0) {
    throw_input_error(
        "{}: {} {} does not divide dimension {} ({})", tensor.name, degree_name, degree, rule.dimension, extent);
  }
  if (!tensor.scale.empty()) {
    const int64_t block_len = rule.dimension == 0 ? config.quantization->block_rows : config.quantization->block_cols;
    if (extent / degree % block_len != 0) {
      throw_input_error("{}: {} {} cuts dimension {} ({}) into {}, not a multiple of the {} of an FP8 block",
                        tensor.name,
                        degree_name,
                        degree,
                        rule.dimension,
                        extent,
                        extent / degree,
                        block_len);
    }
  }
  return {.dimension = rule.dimension, .degree = degree};
}

}  // namespace

RankPlace ParallelPlan::place(int64_t rank) const {
  CHECK(0 <= rank && rank < layout.num_ranks());
  const int64_t in_stage = rank % layout.stage_len();
  const int64_t tp_rank = rank % layout.tp;
  return {.stage = rank / layout.stage_len(),
          .dp_rank = in_stage / layout.tp,
          .tp_rank = tp_rank,
          .ep_rank = in_stage % layout.ep,
          .expert_tp_rank = layout.ep < layout.tp ? tp_rank / layout.ep : 0};
}

IndexRange ParallelPlan::stage_layers(int64_t stage) const {
  CHECK(0 <= stage && stage < layout.pp);
  IndexRange layers = part_of(config.num_hidden_layers, layout.pp, stage);
  if (stage == layout.pp - 1) {
    layers.end += config.num_nextn_predict_layers;
  }
  return layers;
}

IndexRange ParallelPlan::experts(int64_t ep_rank) const {
  CHECK(0 <= ep_rank && ep_rank < layout.ep);
  return part_of(config.n_routed_experts, layout.ep, ep_rank);
}

std::vector<int64_t> ParallelPlan::hosted_experts(int64_t layer, int64_t ep_rank) const {
  if (expert_of_slot.empty()) {
    const IndexRange own = experts(ep_rank);
    std::vector<int64_t> hosted(static_cast<size_t>(own.end - own.begin));
    std::iota(hosted.begin(), hosted.end(), own.begin);
    return hosted;
  }
  const auto& slots = expert_of_slot.at(static_cast<size_t>(layer));
  const int64_t num_own = static_cast<int64_t>(slots.size()) / layout.ep;
  return {slots.begin() + ep_rank * num_own, slots.begin() + (ep_rank + 1) * num_own};
}

std::optional<TensorSlice> ParallelPlan::slice(int64_t tensor_idx, int64_t rank) const {
  CHECK(0 <= tensor_idx && tensor_idx < static_cast<int64_t>(tensors.size()));
  const CatalogTensor& tensor = tensors[static_cast<size_t>(tensor_idx)];
  const TensorSplit& split = splits[static_cast<size_t>(tensor_idx)];
  const RankPlace at = place(rank);
  const bool is_first_stage = at.stage == 0;
  const bool is_last_stage = at.stage == layout.pp - 1;
  if (tensor.layer >= 0) {
    const IndexRange layers = stage_layers(at.stage);
    if (tensor.layer < layers.begin || tensor.layer >= layers.end) {
      return std::nullopt;
    }
  } else if (tensor.name == "model.embed_tokens.weight") {
    // With tied embeddings the table is the head as well.
    if (!is_first_stage && !(is_last_stage && config.tie_word_embeddings)) {
      return std::nullopt;
    }
  } else if (!is_last_stage) {
    return std::nullopt;
  }
  if (tensor.expert >= 0) {
    const auto own = hosted_experts(tensor.layer, at.ep_rank);
    if (std::ranges::find(own, tensor.expert) == own.end()) {
      return std::nullopt;
    }
  }
  const int64_t part_len = tensor.shape[static_cast<size_t>(split.dimension)] / split.degree;
  const int64_t part = split.degree == 1 ? 0 : (tensor.expert >= 0 ? at.expert_tp_rank : at.tp_rank);
  return TensorSlice{
      .tensor_idx = tensor_idx, .dimension = split.dimension, .range = {part * part_len, (part + 1) * part_len}};
}

std::vector<TensorSlice> ParallelPlan::slices(int64_t rank) const {
  std::vector<TensorSlice> held;
  for (int64_t tensor_idx = 0; tensor_idx < static_cast<int64_t>(tensors.size()); ++tensor_idx) {
    if (const std::optional<TensorSlice> part = slice(tensor_idx, rank)) {
      held.push_back(*part);
    }
  }
  return held;
}

std::vector<int64_t> ParallelPlan::holders(int64_t tensor_idx, int64_t rank) const {
  std::vector<int64_t> ranks;
  const std::optional<TensorSlice> own = slice(tensor_idx, rank);
  for (int64_t other = 0; own && other < layout.num_ranks(); ++other) {
    if (slice(tensor_idx, other) == own) {
      ranks.push_back(other);
    }
  }
  return ranks;
}

bool is_cut_over_tensor_ranks(const Op& op) {
  switch (op.kind) {
    case OpKind::kRotateQuery:
    case OpKind::kQueryLatent:
    case OpKind::kAttentionProbs:
    case OpKind::kAttentionLse:
    case OpKind::kOutputLatent:
    case OpKind::kAttentionContext:
    case OpKind::kSwiglu:
    case OpKind::kHead: return true;
    case OpKind::kLinear:
      return std::ranges::any_of(std::array{".q_b", ".attn.q", ".kv_b", ".gate", ".up"},
                                 [&](const char* suffix) { return op.id.ends_with(suffix); });
    default: return false;
  }
}

bool is_cut_over_rows(const Op& op) {
  const auto ends_with_one_of = [&](std::initializer_list<const char*> suffixes) {
    return std::ranges::any_of(suffixes, [&](const char* suffix) { return op.id.ends_with(suffix); });
  };
  switch (op.kind) {
    case OpKind::kResidualAdd:
    case OpKind::kRouterLogits:
    case OpKind::kRouterScores:
    case OpKind::kRouterGroups:
    case OpKind::kRouterExperts:
    case OpKind::kRouterWeights:
    case OpKind::kCombine:
    case OpKind::kMoeOutput:
    case OpKind::kLayerOutput: return true;
    case OpKind::kRmsNorm: return ends_with_one_of({".attn_norm", ".ffn_norm", "final_norm", ".norm"});
    case OpKind::kLinear: return ends_with_one_of({".o_proj", ".ffn", ".moe.shared"});
    default: return false;
  }
}

ParallelPlan parallel_plan(const ModelConfig& config, const ParallelLayout& layout, ExpertSlots expert_of_slot) {
  check_layout(config, layout, !expert_of_slot.empty());
  if (!expert_of_slot.empty()) {
    check_slots(config, layout, expert_of_slot);
  }
  ParallelPlan plan{.config = config,
                    .layout = layout,
                    .tensors = tensor_catalog(config),
                    .splits = {},
                    .expert_of_slot = std::move(expert_of_slot)};
  for (const CatalogTensor& tensor : plan.tensors) {
    const SplitRule* rule = find_rule(tensor.name);
    if (rule == nullptr) {
      plan.splits.emplace_back();
    } else if (tensor.role == TensorRole::kScale) {
      plan.splits.push_back(plan.splits.back());  // the catalogue lists a scale right after its weight
    } else {
      plan.splits.push_back(split_weight(config, layout, tensor, *rule));
    }
  }
  return plan;
}

}  // namespace model
