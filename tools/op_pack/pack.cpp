#include "tools/op_pack/pack.hpp"

#include "model/safetensors.hpp"
#include "reference/numerics/round.hpp"

namespace tools::op_pack {
namespace {

constexpr int kFormatVersion = 1;
constexpr const char* kMetadataKey = "dsv3_op";

// RN(value - error) or RN(value + error) in the format of the output. Every format but F64 fits into F32.
model::TensorView interval_end(const model::Estimate& estimate, double sign) {
  std::vector<double> ends(estimate.value.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    ends[i] = reference::round_to_format(estimate.dtype, estimate.value[i] + sign * estimate.error[i]);
  }
  if (estimate.dtype == model::DType::kF64) {
    return model::make_tensor(model::DType::kF64, estimate.shape, std::move(ends));
  }
  return model::make_tensor(model::DType::kF32, estimate.shape, std::vector<float>(ends.begin(), ends.end()));
}

}  // namespace

std::string tensor_name(const std::string& stem, const std::string& output) {
  return output.empty() ? stem : stem + "." + output;
}

void write_pack(const std::filesystem::path& path, const OpPack& pack) {
  auto tensors = pack.inputs;
  auto facts = pack.facts;
  facts["format_version"] = kFormatVersion;
  for (const PackOutput& output : pack.outputs) {
    facts["outputs"].push_back(output.name);
    tensors.emplace_back(tensor_name("output", output.name), output.stored);
    const auto& estimate = output.estimate;
    if (!estimate.value.empty()) {
      const auto add = [&](const std::string& stem, model::TensorView tensor) {
        tensors.emplace_back(tensor_name(stem, output.name), std::move(tensor));
      };
      add("expected", model::make_tensor(model::DType::kF64, estimate.shape, estimate.value));
      add("bound", model::make_tensor(model::DType::kF64, estimate.shape, estimate.error));
      add("low", interval_end(estimate, -1));
      add("high", interval_end(estimate, +1));
    }
  }
  model::write_safetensors(path, tensors, {{kMetadataKey, facts.dump()}});
}

OpPack read_pack(const std::filesystem::path& path) {
  const auto file = model::read_safetensors(path);
  const auto metadata = file.metadata.find(kMetadataKey);
  if (metadata == file.metadata.end()) {
    model::throw_input_error(
        "{}: not an op pack (no metadata {}): expected a file that dsv3-golden op wrote", path.string(), kMetadataKey);
  }
  const auto tensor = [&](const std::string& name) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      model::throw_input_error("{}: the op pack lacks tensor {}", path.string(), name);
    }
    return found->second;
  };
  OpPack pack;
  try {
    pack.facts = nlohmann::ordered_json::parse(metadata->second);
    const int version = pack.facts.at("format_version").get<int>();
    if (version > kFormatVersion) {
      model::throw_input_error(
          "{}: op pack of format {}, this program reads up to {}", path.string(), version, kFormatVersion);
    }
    for (const auto& item : pack.facts.at("outputs")) {
      const auto name = item.get<std::string>();
      PackOutput output{name, tensor(tensor_name("output", name)), {}};
      if (output.stored.dtype != model::DType::kI32) {
        const auto expected = tensor(tensor_name("expected", name));
        const auto bound = tensor(tensor_name("bound", name));
        if (expected.shape != output.stored.shape || bound.shape != output.stored.shape) {
          model::throw_input_error("{}: output, expected and bound of '{}' differ in shape", path.string(), name);
        }
        output.estimate = {expected.shape, model::to_double(expected), model::to_double(bound), output.stored.dtype};
      }
      pack.outputs.push_back(std::move(output));
    }
  } catch (const nlohmann::json::exception& error) {
    model::throw_input_error("{}: metadata {} is damaged: {}", path.string(), kMetadataKey, error.what());
  }
  if (pack.outputs.empty()) {
    model::throw_input_error("{}: the op pack names no output", path.string());
  }
  for (const auto& [name, view] : file.tensors) {
    pack.inputs.emplace_back(name, view);
  }
  return pack;
}

}  // namespace tools::op_pack
