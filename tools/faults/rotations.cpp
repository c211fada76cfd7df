// Faults in the rotation of queries and keys.
#include <algorithm>
#include <cmath>

#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// Columns of each vector of `width`, from place_of(column).
FaultyOp with_output_places(std::function<int64_t(int64_t column, int64_t width)> place_of) {
  return with_output([place_of = std::move(place_of)](const TensorView& y, const OpCall& call) {
    const int64_t width = call.config().qk_rope_head_dim;
    return columns_from(y, [&](int64_t c) { return c / width * width + place_of(c % width, width); });
  });
}

// Positions moved by `shift`, not below 0: the step is run as if that many positions more were cached.
FaultyOp with_positions(int64_t shift) {
  return [shift](const OpCall& call) {
    model::Workload moved = call.workload;
    moved.sequences.clear();
    for (const auto& [num_cached, num_new] : call.workload.sequences) {
      for (int64_t i = 0; i < num_new; ++i) {
        moved.sequences.push_back({.num_cached = std::max<int64_t>(num_cached + i + shift, 0), .num_new = 1});
      }
    }
    const OpCall changed{.rules = call.rules,
                         .workload = moved,
                         .weights = call.weights,
                         .op = call.op,
                         .inputs = call.inputs,
                         .num_threads = call.num_threads};
    return reference::run_op(changed);
  };
}

// Where each head's rope part would be if q_b held all heads' nope parts first and their rope parts after them.
TensorView taken_from_the_end(const TensorView& q_b, const OpCall& call) {
  const auto& c = call.config();
  return columns_from(q_b, [&](int64_t column) {
    const int64_t head = column / c.qk_head_dim();
    const int64_t i = column % c.qk_head_dim() - c.qk_nope_head_dim;
    return i < 0 ? column : c.num_attention_heads * c.qk_nope_head_dim + head * c.qk_rope_head_dim + i;
  });
}

// The two halves of the key's rope part as pairs: rotated like the published layout, on other pairs.
FaultyOp on_half_split_pairs() {
  return [](const OpCall& call) {
    const int64_t half = call.config().qk_rope_head_dim / 2;
    const int64_t first = call.config().kv_lora_rank;
    OpCall changed = call;
    changed.inputs[0] = columns_from(call.inputs[0], [&](int64_t c) {
      const int64_t i = c - first;
      return i < 0 ? c : first + i / 2 + i % 2 * half;
    });
    return columns_from(reference::run_op(changed), [&](int64_t c) { return c < half ? 2 * c : 2 * (c - half) + 1; });
  };
}

// YaRN, where the config has it.
FaultyOp with_yarn(std::function<void(model::ModelConfig&, model::YarnConfig&)> change) {
  return with_config([change = std::move(change)](model::ModelConfig& config) {
    if (config.yarn) {
      change(config, *config.yarn);
    }
  });
}

}  // namespace

std::vector<Fault> rotation_faults() {
  const std::string query = "layer.*.attn.q_rope";
  const std::string key = "layer.*.attn.k_rope";
  std::vector<Fault> faults;
  faults.push_back(make_fault(
      "bb-17",
      "rotated queries are stored half-split, keys interleaved",
      query,
      on_nano(),
      with_output_places([](int64_t c, int64_t width) { return c < width / 2 ? 2 * c : 2 * c - width + 1; })));
  faults.push_back(make_fault("h-05",
                              "the rotated part has a projection of its own behind all others",
                              query,
                              on_nano(),
                              with_input(0, taken_from_the_end)));
  faults.push_back(make_fault("h-47",
                              "YaRN stretches the base instead of each frequency",
                              "layer.*.attn.[qk]_rope",
                              on_nano(),
                              with_yarn([](model::ModelConfig& config, model::YarnConfig& yarn) {
                                const auto dim = static_cast<double>(config.qk_rope_head_dim);
                                config.rope_theta *= std::pow(yarn.factor, dim / (dim - 2));
                                yarn.factor = 1;
                              })));
  faults.push_back(
      make_fault("k-64", "keys are rotated by the position before theirs", key, on_nano_step(), with_positions(-1)));
  faults.push_back(make_fault("k-65",
                              "queries of a decode step are rotated by the position before theirs",
                              query,
                              on_nano_step(),
                              with_positions(-1)));
  faults.push_back(make_fault("k-66", "keys are rotated in half-split pairs", key, on_nano(), on_half_split_pairs()));
  faults.push_back(make_fault("k-67", "the rotation turns the other way", key, on_nano(), [](const OpCall& call) {
    // With the two of each pair exchanged before and after, the sine changes its sign.
    const int64_t first = call.config().kv_lora_rank;
    OpCall changed = call;
    changed.inputs[0] =
        columns_from(call.inputs[0], [&](int64_t c) { return c < first ? c : first + ((c - first) ^ 1); });
    return columns_from(reference::run_op(changed), [](int64_t c) { return c ^ 1; });
  }));
  faults.push_back(
      make_fault("k-68",
                 "rotated vectors lack the ratio of the two mscales",
                 query,
                 on_notv3(),
                 with_yarn([](model::ModelConfig&, model::YarnConfig& yarn) { yarn.mscale = yarn.mscale_all_dim; })));
  faults.push_back(make_fault("k-69",
                              "YaRN is left out for short contexts",
                              key,
                              on_nano(),
                              with_yarn([](model::ModelConfig&, model::YarnConfig& yarn) { yarn.factor = 1; })));
  faults.push_back(make_fault("k-70",
                              "rope_theta is 10000 whatever the config says",
                              query,
                              on_notv3(),
                              with_config([](model::ModelConfig& config) { config.rope_theta = 10000; })));
  return faults;
}

}  // namespace tools::faults
