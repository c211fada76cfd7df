#include "golden/store.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "golden/manifest_json.hpp"
#include "model/check.hpp"
#include "model/safetensors.hpp"

namespace golden {
namespace {

using model::throw_input_error;

constexpr const char* kManifestKey = "dsv3";

}  // namespace

std::string content_hash(const model::TensorView& tensor) {
  return fmt::format("{:016x}", XXH3_64bits(tensor.bytes.data(), tensor.bytes.size()));
}

std::vector<int64_t> sample_places(int64_t num_elements) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < std::min(num_elements, kNumSamples); ++i) {
    // The middle of each of 256 equal parts, moved by up to half of one so that no column is always missed.
    const int64_t begin = i * num_elements / kNumSamples;
    const int64_t end = (i + 1) * num_elements / kNumSamples;
    places.push_back(num_elements <= kNumSamples ? i : begin + (i * 7919) % std::max<int64_t>(1, end - begin));
  }
  return places;
}

GoldenFile read_golden(const std::filesystem::path& path) {
  model::SafetensorsFile file = model::read_safetensors(path);
  const auto text = file.metadata.find(kManifestKey);
  if (text == file.metadata.end()) {
    throw_input_error(
        "{}: not a golden file, expected a manifest under metadata key \"{}\"", path.string(), kManifestKey);
  }
  GoldenFile golden{.manifest = parse_manifest(text->second, path.string() + ": manifest"),
                    .tensors = std::move(file.tensors)};
  for (const auto& [name, hash] : golden.manifest.tensor_hashes) {
    const auto found = golden.tensors.find(name);
    if (found == golden.tensors.end()) {
      throw_input_error("{}: tensor {} is missing, the manifest has a hash of it", path.string(), name);
    }
    if (const std::string actual = content_hash(found->second); actual != hash) {
      throw_input_error("{}: tensor {}: bytes have hash {}, the manifest says {}", path.string(), name, actual, hash);
    }
  }
  for (const auto& [name, tensor] : golden.tensors) {
    if (!golden.manifest.tensor_hashes.contains(name)) {
      throw_input_error("{}: tensor {} has no hash in the manifest", path.string(), name);
    }
  }
  return golden;
}

void write_golden(const std::filesystem::path& path, GoldenFile golden) {
  golden.manifest.tensor_hashes.clear();
  for (const auto& [name, tensor] : golden.tensors) {
    golden.manifest.tensor_hashes[name] = content_hash(tensor);
  }
  model::write_safetensors(path,
                           {golden.tensors.begin(), golden.tensors.end()},
                           {{"format", "pt"}, {kManifestKey, manifest_text(golden.manifest)}});
}

}  // namespace golden
