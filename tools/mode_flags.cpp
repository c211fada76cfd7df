#include "tools/mode_flags.hpp"

#include <set>

#include "model/check.hpp"

namespace tools {
namespace {

void require_one_of(const std::string& flag, const std::string& value, const std::set<std::string>& allowed) {
  if (!allowed.contains(value)) {
    model::throw_input_error("{} {}: expected one of {}", flag, value, fmt::join(allowed, ", "));
  }
}

}  // namespace

ModeFlags resolved(ModeFlags flags, const model::ModelConfig& config) {
  require_one_of("--mode", flags.mode, {"exact", "published"});
  const bool exact = flags.mode == "exact";
  if (exact) {
    flags.profile = "";
    if (!flags.gemm.empty() || !flags.scale.empty()) {
      model::throw_input_error("--mode exact quantises nothing: --gemm and --scale do not apply");
    }
  } else {
    require_one_of("--profile", flags.profile, {"v32", "v3-demo", "hf"});
    if (flags.profile == "hf") {
      if (flags.gemm == "fp8") {
        model::throw_input_error("--gemm fp8: profile hf computes in BF16 (transformers dequantises FP8 weights)");
      }
      flags.gemm = "bf16";
    }
    if (flags.gemm.empty()) {
      flags.gemm = config.quantization ? "fp8" : "bf16";
    }
    if (flags.scale.empty()) {
      flags.scale =
          config.quantization && config.quantization->scale_fmt == model::ScaleFormat::kUe8m0 ? "ue8m0" : "fp32";
    }
    require_one_of("--gemm", flags.gemm, {"fp8", "bf16"});
    require_one_of("--scale", flags.scale, {"fp32", "ue8m0"});
    if (flags.gemm == "fp8" && !config.quantization) {
      model::throw_input_error("--gemm fp8: the checkpoint's weights are BF16");
    }
  }
  if (flags.attention.empty()) {
    flags.attention = exact || flags.profile == "hf" ? "naive" : flags.profile == "v3-demo" ? "absorbed" : "by-length";
  }
  require_one_of("--attention", flags.attention, {"naive", "absorbed", "by-length"});
  return flags;
}

reference::Rules rules_of(const ModeFlags& flags) {
  if (flags.mode == "exact") {
    return reference::exact_rules();
  }
  if (flags.profile == "hf") {
    return reference::hf_rules();
  }
  const auto gemm = flags.gemm == "fp8" ? reference::Gemm::kFp8 : reference::Gemm::kBf16;
  const auto scale = flags.scale == "ue8m0" ? model::ScaleFormat::kUe8m0 : model::ScaleFormat::kFp32;
  return flags.profile == "v3-demo" ? reference::v3_demo_rules(gemm, scale) : reference::v32_rules(gemm, scale);
}

}  // namespace tools
