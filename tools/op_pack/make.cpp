#include "tools/op_pack/make.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "reference/variants.hpp"
#include "tools/cli.hpp"
#include "tools/op_pack/kinds.hpp"

namespace tools::op_pack {
namespace {

constexpr int64_t kLargestSize = int64_t{1} << 24;

std::vector<int64_t> parse_numbers(const std::string& key, const std::string& text, bool is_list) {
  std::vector<int64_t> numbers;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ':');) {
    int64_t number = -1;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (error != std::errc() || end != item.data() + item.size() || number < 0 || number > kLargestSize) {
      model::throw_input_error("--shape {}={}: '{}' is not a number in [0, {}]", key, text, item, kLargestSize);
    }
    numbers.push_back(number);
  }
  if (numbers.empty() || (!is_list && numbers.size() != 1)) {
    model::throw_input_error(
        "--shape {}={}: expected {}", key, text, is_list ? "numbers separated by ':'" : "one number");
  }
  return numbers;
}

bool may_be_zero(std::string_view key) {
  constexpr std::array kKeys{"cached", "residual", "shared"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

ShapeValues parse_shape(const Kind& kind, const PackRequest& request) {
  ShapeValues shape;
  for (const ShapeKey& key : kind.keys) {
    shape.set(std::string(key.name), parse_numbers(std::string(key.name), std::string(key.usual), key.is_list));
  }
  for (const std::string& item : split_list(request.shape)) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const auto key =
        std::find_if(kind.keys.begin(), kind.keys.end(), [&](const ShapeKey& k) { return k.name == name; });
    if (equals == std::string::npos || key == kind.keys.end()) {
      std::vector<std::string_view> names;
      std::transform(
          kind.keys.begin(), kind.keys.end(), std::back_inserter(names), [](const ShapeKey& k) { return k.name; });
      model::throw_input_error(
          "--shape {}: expected KEY=NUMBER with a key of {}: {}", item, kind.name, fmt::join(names, ", "));
    }
    if (key->of_checkpoint && !request.checkpoint.empty()) {
      model::throw_input_error("--shape {}: the checkpoint decides it", item);
    }
    const auto numbers = parse_numbers(name, item.substr(equals + 1), key->is_list);
    if (!key->is_list && numbers.front() == 0 && !may_be_zero(name)) {
      model::throw_input_error("--shape {}: expected at least 1", item);
    }
    shape.set(name, numbers);
  }
  return shape;
}

struct ConfigSize {
  std::string_view key;
  int64_t model::ModelConfig::*member;
};

constexpr std::array kConfigSizes{
    ConfigSize{"hidden", &model::ModelConfig::hidden_size},
    ConfigSize{"heads", &model::ModelConfig::num_attention_heads},
    ConfigSize{"nope", &model::ModelConfig::qk_nope_head_dim},
    ConfigSize{"rope", &model::ModelConfig::qk_rope_head_dim},
    ConfigSize{"v", &model::ModelConfig::v_head_dim},
    ConfigSize{"kv_lora", &model::ModelConfig::kv_lora_rank},
    ConfigSize{"experts", &model::ModelConfig::n_routed_experts},
    ConfigSize{"groups", &model::ModelConfig::n_group},
    ConfigSize{"topk_groups", &model::ModelConfig::topk_group},
    ConfigSize{"topk", &model::ModelConfig::num_experts_per_tok},
};

// Sizes go from the shape into the published config, or from the checkpoint's config into the shape.
void agree_on_sizes(const Kind& kind, bool from_checkpoint, model::ModelConfig& config, ShapeValues& shape) {
  for (const ConfigSize& size : kConfigSizes) {
    const bool has_key =
        std::any_of(kind.keys.begin(), kind.keys.end(), [&](const ShapeKey& key) { return key.name == size.key; });
    if (!has_key) {
      continue;
    }
    const std::string key(size.key);
    if (from_checkpoint) {
      shape.set(key, {config.*size.member});
    } else {
      config.*size.member = shape[key];
    }
  }
}

void check_choice(const Kind& kind, const model::ModelConfig& c) {
  if (kind.name == "combine" && c.num_experts_per_tok > c.n_routed_experts) {
    model::throw_input_error("--shape: topk {} of {} experts", c.num_experts_per_tok, c.n_routed_experts);
  }
  if (kind.name != "router") {
    return;
  }
  if (c.n_group < 1 || c.n_routed_experts % c.n_group != 0 || c.experts_per_group() < 2) {
    model::throw_input_error(
        "--shape: {} groups do not divide {} experts into groups of at least 2", c.n_group, c.n_routed_experts);
  }
  if (c.topk_group > c.n_group || c.num_experts_per_tok > c.topk_group * c.experts_per_group()) {
    model::throw_input_error("--shape: topk {} does not fit {} of {} groups of {} experts",
                             c.num_experts_per_tok,
                             c.topk_group,
                             c.n_group,
                             c.experts_per_group());
  }
}

reference::Rules chosen_rules(const Kind& kind, const PackRequest& request, const ModeFlags& mode) {
  const auto rules = rules_of(mode);
  if (request.variant.empty()) {
    return rules;
  }
  std::vector<std::string> names;
  for (const auto& variant : reference::rule_variants(rules, kind.ops)) {
    if (variant.name == request.variant) {
      return variant.rules;
    }
    names.push_back(variant.name);
  }
  model::throw_input_error("--variant {}: expected one of {}", request.variant, fmt::join(names, ", "));
}

}  // namespace

OpPack make_pack(const PackRequest& request) {
  const Kind& kind = find_kind(request.kind);
  const bool of_checkpoint =
      std::any_of(kind.keys.begin(), kind.keys.end(), [](const ShapeKey& key) { return key.of_checkpoint; });
  const bool has_weight = !kind.usual_op.empty() || kind.name == "router";
  OpenedCheckpoint checkpoint;
  if (!request.checkpoint.empty()) {
    if (!of_checkpoint) {
      model::throw_input_error("--checkpoint: op {} takes nothing from one", kind.name);
    }
    checkpoint = open_checkpoint(request.checkpoint);
    const auto& c = checkpoint.weights->config();
    const int64_t num_layers = c.num_hidden_layers + c.num_nextn_predict_layers;
    if (request.layer >= num_layers || (has_weight && request.layer < 0)) {
      model::throw_input_error("--layer: expected the number of a layer of the checkpoint, 0 to {}", num_layers - 1);
    }
  } else if (request.layer >= 0 || !request.op.empty()) {
    model::throw_input_error("--layer and --op name a weight of a checkpoint: give --checkpoint too");
  }
  if (!request.op.empty() && kind.usual_op.empty()) {
    model::throw_input_error("--op: op {} has no weight to name", kind.name);
  }
  auto shape = parse_shape(kind, request);
  auto config = checkpoint.weights ? checkpoint.weights->config() : model::built_in_config("deepseek-v3");
  agree_on_sizes(kind, checkpoint.weights != nullptr, config, shape);
  check_choice(kind, config);
  const ModeFlags mode = resolved(request.mode, config);
  const auto rules = chosen_rules(kind, request, mode);
  Bench bench{.request = request,
              .shape = shape,
              .rules = rules,
              .samples = Samples(request.seed),
              .checkpoint = checkpoint.weights.get(),
              .weights = MemoryWeights(config)};
  OpPack pack = kind.make(bench);
  const auto constants = pack.facts;
  pack.facts = {{"kind", kind.name},
                {"shape", bench.shape.json()},
                {"mode", mode.mode},
                {"profile", mode.profile},
                {"gemm", mode.gemm},
                {"scale", mode.scale},
                {"variant", request.variant},
                {"rules", reference::describe_rules(rules)},
                {"seed", request.seed},
                {"checkpoint", request.checkpoint},
                {"checkpoint_hash", checkpoint.hash},
                {"layer", request.layer}};
  for (const auto& [key, value] : constants.items()) {
    pack.facts[key] = value;
  }
  return pack;
}

}  // namespace tools::op_pack
