#include "reference/residual_stream.hpp"

#include <algorithm>
#include <string_view>

namespace reference {
namespace {

bool is_scaled(const Rules& rules) {
  return rules.stream == StreamUnits::kOverRoutedFactor;
}

bool ends_with_one_of(const model::Op& op, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&op](std::string_view ending) { return op.id.ends_with(ending); });
}

bool writes_stream(const model::Op& op) {
  switch (op.kind) {
    case model::OpKind::kEmbed:
    case model::OpKind::kMtpConcat: return true;
    case model::OpKind::kLinear: return ends_with_one_of(op, {".attn.o_proj", ".ffn", ".moe.shared"});
    default: return false;
  }
}

// All but those of q_a and kv_a, and hnorm, which reads a normed state.
bool reads_stream(const model::Op& norm) {
  return !ends_with_one_of(norm, {".attn.q_a_norm", ".attn.kv_a_norm", ".hnorm"});
}

}  // namespace

float stream_unit(const Rules& rules, const model::ModelConfig& config) {
  return is_scaled(rules) ? static_cast<float>(1.0 / config.routed_scaling_factor) : 1.0f;
}

float output_unit(const Rules& rules, const model::ModelConfig& config, const model::Op& op) {
  return is_scaled(rules) && writes_stream(op) ? stream_unit(rules, config) : 1.0f;
}

double norm_eps(const Rules& rules, const model::ModelConfig& config, const model::Op& norm) {
  const double unit = is_scaled(rules) && reads_stream(norm) ? stream_unit(rules, config) : 1.0;
  return config.rms_norm_eps * (unit * unit);
}

double routed_factor(const Rules& rules, const model::ModelConfig& config) {
  return is_scaled(rules) ? 1.0 : config.routed_scaling_factor;
}

}  // namespace reference
