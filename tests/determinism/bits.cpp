#include "tests/determinism/bits.hpp"

#include <xxhash.h>

#include <cctype>

#include "model/checkpoint.hpp"
#include "model/probe.hpp"
#include "reference/simd/kernels.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/transformer.hpp"
#include "tests/paths.hpp"
#include "tools/synthetic/argument.hpp"

namespace determinism {
namespace {

using model::AttentionForm;
using model::ScaleFormat;
using reference::Gemm;

// Layers and experts of an op's name as '#'.
std::string without_numbers(const std::string& id) {
  std::string name;
  for (const char symbol : id) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(symbol)) != 0;
    const bool starts_number = is_digit && (name.empty() || name.back() == '.');
    if (starts_number) {
      name += '#';
    } else if (!is_digit || name.back() != '#') {
      name += symbol;
    }
  }
  return name;
}

class Hasher : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return true; }
  void see(const model::Op& op, const model::TensorView& value) override {
    uint64_t& hash = bits_[without_numbers(op.id)];
    hash = XXH3_64bits_withSeed(value.bytes.data(), value.bytes.size(), hash);
  }
  [[nodiscard]] const Bits& bits() const { return bits_; }

 private:
  Bits bits_;
};

}  // namespace

std::vector<Mode> modes_of(const model::ModelConfig& config) {
  const bool has_fp8 = config.quantization.has_value();
  const auto v32 = [](Gemm gemm) { return reference::v32_rules(gemm, ScaleFormat::kFp32); };
  std::vector<Mode> modes{
      {"exact", reference::exact_rules()}, {"hf", reference::hf_rules()}, {"v32-bf16", v32(Gemm::kBf16)}};
  if (has_fp8) {
    modes.push_back({"v32", v32(Gemm::kFp8)});
    modes.push_back({"v32-ue8m0", reference::v32_rules(Gemm::kFp8, ScaleFormat::kUe8m0)});
  }
  modes.push_back({"v3-demo", reference::v3_demo_rules(has_fp8 ? Gemm::kFp8 : Gemm::kBf16, ScaleFormat::kFp32)});
  for (const auto& recipe : reference::tensor_core::linear_recipes()) {
    const bool fp8 = has_fp8 && reference::tensor_core::has_unit(*recipe, reference::tensor_core::Format::kE4m3);
    modes.push_back({recipe->name, reference::with_recipe(v32(fp8 ? Gemm::kFp8 : Gemm::kBf16), recipe)});
  }
  return modes;
}

std::vector<SmallModel> small_models() {
  std::vector<SmallModel> models;
  models.push_back({"mini", std::make_unique<model::Checkpoint>(source_dir() / "golden/data/mini/checkpoint")});
  for (const char* name : {"edge", "nano", "notv3", "ragged"}) {
    models.push_back({name, tools::synthetic::open_synthetic(std::string("synthetic:") + name)});
  }
  return models;
}

Bits bits_of(const model::WeightSource& weights, const reference::Rules& rules, const Cell& cell, int32_t first_token) {
  reference::simd::use_level(cell.level);
  const auto token_at = [&](int64_t position) {
    return static_cast<int32_t>((first_token + 37 * position) % weights.config().vocab_size);
  };
  Hasher hasher;
  reference::LatentCache cache;
  const reference::Transformer transformer(weights, rules, cell.num_threads);
  int64_t fed = 0;
  for (const int64_t count : {7, 1, 1}) {
    reference::StepInput input;
    input.workload.sequences = {{.num_cached = fed, .num_new = count}};
    input.workload.attention_form = fed == 0 ? AttentionForm::kExpanded : AttentionForm::kAbsorbed;
    input.workload.num_mtp_layers = weights.config().num_nextn_predict_layers;
    input.mtp_tokens.resize(static_cast<size_t>(input.workload.num_mtp_layers));
    for (int64_t i = fed; i < fed + count; ++i) {
      input.tokens.push_back(token_at(i));
      for (size_t k = 0; k < input.mtp_tokens.size(); ++k) {
        input.mtp_tokens[k].push_back(token_at(i + 1 + static_cast<int64_t>(k)));
      }
    }
    transformer.step(input, cache, hasher);
    fed += count;
  }
  return hasher.bits();
}

}  // namespace determinism
