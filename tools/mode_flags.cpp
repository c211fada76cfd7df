#include "tools/mode_flags.hpp"

#include <set>
#include <string_view>

#include "model/check.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/recipe_file.hpp"

namespace tools {
namespace {

void require_one_of(const std::string& flag, const std::string& value, const std::set<std::string>& allowed) {
  if (!allowed.contains(value)) {
    model::throw_input_error("{} {}: expected one of {}", flag, value, fmt::join(allowed, ", "));
  }
}

constexpr std::string_view kArithmetic = "arithmetic:";

bool is_arithmetic(const ModeFlags& flags) {
  return flags.mode.starts_with(kArithmetic);
}

std::set<std::string> known_modes() {
  std::set<std::string> names{"exact", "published", "fast", "arithmetic:FILE.json"};
  for (const auto& recipe : reference::tensor_core::linear_recipes()) {
    names.insert(recipe->name);
  }
  return names;
}

// Published rules with linears as the mode has them.
reference::Rules with_mode(const ModeFlags& flags, reference::Rules rules) {
  if (is_arithmetic(flags)) {
    auto recipe = reference::tensor_core::parse_arithmetic(flags.arithmetic, flags.mode.substr(kArithmetic.size()));
    return reference::with_recipe(rules, std::make_shared<const reference::tensor_core::Recipe>(std::move(recipe)));
  }
  if (flags.mode == "fast") {
    rules.linear_sum = reference::LinearSum::kAnyOrder;
    return rules;
  }
  const auto recipe = reference::tensor_core::find_linear_recipe(flags.mode);
  return recipe ? reference::with_recipe(rules, recipe) : rules;
}

}  // namespace

ModeFlags resolved(ModeFlags flags, const model::ModelConfig& config) {
  if (is_arithmetic(flags)) {
    flags.arithmetic = reference::tensor_core::read_arithmetic_text(flags.mode.substr(kArithmetic.size()));
  } else {
    require_one_of("--mode", flags.mode, known_modes());
  }
  const bool exact = flags.mode == "exact";
  if (exact) {
    flags.profile = "";
    if (!flags.gemm.empty() || !flags.scale.empty()) {
      model::throw_input_error("--mode exact quantises nothing: --gemm and --scale do not apply");
    }
  } else {
    require_one_of("--profile", flags.profile, {"v32", "v3-demo", "hf", "fp16"});
    const std::string plain = flags.profile == "fp16" ? "fp16" : "bf16";  // what is not quantised is computed in
    if (flags.profile == "hf") {
      if (flags.gemm == "fp8") {
        model::throw_input_error("--gemm fp8: profile hf computes in BF16 (transformers dequantises FP8 weights)");
      }
      flags.gemm = "bf16";
    }
    if (flags.gemm.empty()) {
      flags.gemm = config.quantization ? "fp8" : plain;
    }
    if (flags.scale.empty()) {
      flags.scale =
          config.quantization && config.quantization->scale_fmt == model::ScaleFormat::kUe8m0 ? "ue8m0" : "fp32";
    }
    require_one_of("--gemm", flags.gemm, {"fp8", plain});
    require_one_of("--scale", flags.scale, {"fp32", "ue8m0"});
    if (flags.gemm == "fp8" && !config.quantization) {
      model::throw_input_error("--gemm fp8: the checkpoint's weights are BF16");
    }
  }
  if (flags.attention.empty()) {
    flags.attention = exact || flags.profile == "hf" ? "naive" : flags.profile == "v3-demo" ? "absorbed" : "by-length";
  }
  require_one_of("--attention", flags.attention, {"naive", "absorbed", "by-length"});
  (void)rules_of(flags);
  return flags;
}

reference::Rules rules_of(const ModeFlags& flags) {
  if (flags.mode == "exact") {
    return reference::exact_rules();
  }
  if (flags.profile == "hf") {
    return with_mode(flags, reference::hf_rules());
  }
  const auto gemm = flags.gemm == "fp8" ? reference::Gemm::kFp8 : reference::Gemm::kBf16;
  const auto scale = flags.scale == "ue8m0" ? model::ScaleFormat::kUe8m0 : model::ScaleFormat::kFp32;
  const auto rules_of_profile = flags.profile == "v3-demo" ? reference::v3_demo_rules
                                : flags.profile == "fp16"  ? reference::fp16_rules
                                                           : reference::v32_rules;
  return with_mode(flags, rules_of_profile(gemm, scale));
}

}  // namespace tools
