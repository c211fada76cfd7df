#include "simulator/layout.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"

namespace simulator {
namespace {

using model::ParallelLayout;

constexpr int64_t kMaxDegree = 1 << 20;

struct NamedDegree {
  const char* name;
  std::optional<int64_t> LayoutRequest::*member;
};

constexpr std::array kDegrees{NamedDegree{"tp", &LayoutRequest::tp},
                              NamedDegree{"pp", &LayoutRequest::pp},
                              NamedDegree{"dp", &LayoutRequest::dp},
                              NamedDegree{"ep", &LayoutRequest::ep}};

[[noreturn]] void refuse_shorthand(const std::string& text, const std::string& reason) {
  model::throw_input_error(
      "layout {}: {}; expected parts like tp8, tp4pp2, dep8, tep8 or tp4dp8ep32sp", model::printable(text), reason);
}

void set_once(const std::string& text, LayoutRequest& request, const NamedDegree& degree, int64_t value) {
  std::optional<int64_t>& field = request.*degree.member;
  if (field) {
    refuse_shorthand(text, fmt::format("{} is given twice", degree.name));
  }
  field = value;
}

// The same layer kinds with one expert layer and one stage: refusals depend on nothing else, and it is quick to plan.
model::ModelConfig one_of_each_layer(const model::ModelConfig& config) {
  model::ModelConfig small = config;
  small.num_hidden_layers = std::min(config.num_hidden_layers, config.first_k_dense_replace + 1);
  return small;
}

bool is_possible(const model::ModelConfig& config, const ParallelLayout& layout) {
  if (layout.pp > config.num_hidden_layers) {
    return false;
  }
  const model::ModelConfig small = one_of_each_layer(config);
  ParallelLayout one_stage = layout;
  one_stage.pp = 1;
  try {
    model::parallel_plan(small, one_stage);
    return true;
  } catch (const model::InputError&) {
    return false;
  }
}

// "tp 1, 2, 4": the other values of one degree with which the layout is possible; empty when there are none.
std::string possible_values(const model::ModelConfig& config,
                            const ParallelLayout& layout,
                            const char* name,
                            int64_t ParallelLayout::*degree) {
  std::string values;
  for (const int64_t value : {1, 2, 4, 8, 16, 32, 48, 64, 72, 96, 128, 144, 256, 320}) {
    ParallelLayout other = layout;
    other.*degree = value;
    if (is_possible(config, other)) {
      values += fmt::format("{}{}", values.empty() ? fmt::format("{} ", name) : ", ", value);
    }
  }
  return values;
}

}  // namespace

LayoutRequest parse_shorthand(const std::string& text) {
  LayoutRequest request;
  size_t at = 0;
  while (at < text.size()) {
    if (text.compare(at, 2, "sp") == 0) {
      request.sequence_parallel = true;
      at += 2;
      continue;
    }
    const size_t digits = text.find_first_of("0123456789", at);
    const std::string name = text.substr(at, digits == std::string::npos ? std::string::npos : digits - at);
    size_t end = digits;
    int64_t value = 0;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9' && value <= kMaxDegree) {
      value = value * 10 + (text[end++] - '0');
    }
    if (digits == std::string::npos || value < 1 || value > kMaxDegree) {
      refuse_shorthand(text, fmt::format("'{}' has no degree from 1 to {}", model::printable(name), kMaxDegree));
    }
    const bool is_dep = name == "dep";
    if (is_dep || name == "tep") {
      set_once(text, request, kDegrees[is_dep ? 2 : 0], value);
      set_once(text, request, kDegrees[3], value);
    } else {
      bool known = false;
      for (const NamedDegree& degree : kDegrees) {
        if (name == degree.name) {
          set_once(text, request, degree, value);
          known = true;
        }
      }
      if (!known) {
        refuse_shorthand(text, fmt::format("'{}' is no degree", model::printable(name)));
      }
    }
    at = end;
  }
  if (text.empty()) {
    refuse_shorthand(text, "nothing in it");
  }
  return request;
}

LayoutRequest merged(const LayoutRequest& base, const LayoutRequest& more) {
  LayoutRequest request = base;
  for (const NamedDegree& degree : kDegrees) {
    const std::optional<int64_t>& value = more.*degree.member;
    if (value && base.*degree.member) {
      model::throw_input_error("layout: {} is given twice, {} and {}", degree.name, *(base.*degree.member), *value);
    }
    if (value) {
      request.*degree.member = value;
    }
  }
  request.sequence_parallel = base.sequence_parallel || more.sequence_parallel;
  return request;
}

ParallelLayout resolve(const LayoutRequest& request) {
  for (const auto& [name, value] : {std::pair{"tp", request.tp},
                                    {"pp", request.pp},
                                    {"dp", request.dp},
                                    {"ep", request.ep},
                                    {"moe-tp", request.moe_tp}}) {
    if (value && (*value < 1 || *value > kMaxDegree)) {
      model::throw_input_error("layout: {} {}: expected 1 to {}", name, *value, kMaxDegree);
    }
  }
  ParallelLayout layout{.tp = request.tp.value_or(1),
                        .pp = request.pp.value_or(1),
                        .dp = request.dp.value_or(1),
                        .sequence_parallel = request.sequence_parallel};
  if (request.dp_inside_tp) {
    if (layout.tp % layout.dp != 0) {
      model::throw_input_error(
          "layout: dp {} does not divide tp {}, which counts all ranks under --enable-dp-attention",
          layout.dp,
          layout.tp);
    }
    layout.tp /= layout.dp;
  }
  const int64_t all_ranks = layout.stage_len();
  if (request.expert_parallel && request.ep && *request.ep != all_ranks) {
    model::throw_input_error(
        "layout: ep {} and --enable-expert-parallel, which means tp * dp = {}", *request.ep, all_ranks);
  }
  layout.ep = request.ep.value_or(request.expert_parallel || layout.dp > 1 ? all_ranks : 1);
  if (request.moe_tp) {
    if (!request.ep && *request.moe_tp > 0 && all_ranks % *request.moe_tp == 0) {
      layout.ep = all_ranks / *request.moe_tp;
    }
    if (*request.moe_tp != layout.expert_tp()) {
      model::throw_input_error(
          "layout: moe-tp {} with tp {}, dp {} and ep {}: expected {} (an expert is shared by tp / ep ranks)",
          *request.moe_tp,
          layout.tp,
          layout.dp,
          layout.ep,
          layout.expert_tp());
    }
  }
  return layout;
}

std::string layout_text(const ParallelLayout& layout) {
  return fmt::format(
      "tp{} pp{} dp{} ep{}{}", layout.tp, layout.pp, layout.dp, layout.ep, layout.sequence_parallel ? " sp" : "");
}

model::ParallelPlan plan_layout(const model::ModelConfig& config, const ParallelLayout& layout) {
  try {
    return model::parallel_plan(config, layout);
  } catch (const model::InputError& error) {
    std::string changes;
    for (const auto& [name, degree] : {std::pair{"tp", &ParallelLayout::tp},
                                       {"ep", &ParallelLayout::ep},
                                       {"pp", &ParallelLayout::pp},
                                       {"dp", &ParallelLayout::dp}}) {
      const std::string values = possible_values(config, layout, name, degree);
      changes += values.empty() ? "" : (changes.empty() ? "" : "; or ") + values;
    }
    model::throw_input_error("{} (would work: {})",
                             error.what(),
                             changes.empty() ? "no change of a single degree; try dep8 or tep8" : changes);
  }
}

void check_layout(const model::ModelConfig& config, const ParallelLayout& layout, int64_t redundant_experts) {
  const int64_t slots = config.n_routed_experts + redundant_experts;
  if (config.n_routed_experts > 0 && slots % layout.ep != 0) {
    const int64_t more = (layout.ep - config.n_routed_experts % layout.ep) % layout.ep;
    model::throw_input_error(
        "layout {}: {} experts and {} redundant ones do not divide by ep {}: --redundant-experts {} would ({} a rank)",
        layout_text(layout),
        config.n_routed_experts,
        redundant_experts,
        layout.ep,
        more,
        (config.n_routed_experts + more) / layout.ep);
  }
  if (layout.pp > config.num_hidden_layers) {
    model::throw_input_error(
        "layout {}: pp is above the model's {} layers", layout_text(layout), config.num_hidden_layers);
  }
  model::ModelConfig small = one_of_each_layer(config);
  small.n_routed_experts = slots;
  ParallelLayout one_stage = layout;
  one_stage.pp = 1;
  plan_layout(small, one_stage);
}

}  // namespace simulator
