#include "model/checkpoint.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/shards.hpp"
#include "model/tensor_catalog.hpp"

namespace model {
namespace {

using Tensors = std::map<std::string, TensorView>;

constexpr const char* kEmbedName = "model.embed_tokens.weight";
constexpr const char* kHeadName = "lm_head.weight";

std::vector<DType> acceptable_dtypes(const CatalogTensor& entry) {
  switch (entry.role) {
    case TensorRole::kLinear:
      return entry.scale.empty() ? std::vector{DType::kBF16, DType::kF32} : std::vector{DType::kF8E4M3};
    case TensorRole::kScale: return {DType::kF32, DType::kF8E8M0};
    case TensorRole::kBf16Linear:
    case TensorRole::kNorm:
    case TensorRole::kRouterBias: return {DType::kBF16, DType::kF32};
  }
  throw_check_error(__FILE__, __LINE__, "unknown role");
}

// A hostile config may describe far more tensors than the files hold, and listing them all would take long. This counts
// only those that every layer and expert has; a config that is somewhat wrong passes here and gets to know the names.
void check_catalog_size(const ModelConfig& config, size_t num_tensors, const std::string& origin) {
  constexpr int64_t kTensorsPerLayer = 8;
  constexpr int64_t kTensorsPerExpert = 3;
  constexpr int64_t kSlack = 100'000;
  const int64_t num_layers = config.num_hidden_layers + config.num_nextn_predict_layers;
  const int64_t num_late_layers = std::max<int64_t>(0, config.num_hidden_layers - config.first_k_dense_replace);
  const int64_t num_moe_layers = num_late_layers / config.moe_layer_freq + config.num_nextn_predict_layers;
  const int64_t num_described =
      num_layers * kTensorsPerLayer + num_moe_layers * config.n_routed_experts * kTensorsPerExpert;
  if (num_described > static_cast<int64_t>(num_tensors) + kSlack) {
    throw_input_error("{}: {} tensors, but config.json describes more than {}", origin, num_tensors, num_described);
  }
}

// A BF16 copy often keeps the quantization_config of its source, and an FP8 checkpoint may have lost it: the tensors decide.
// Returns the catalogue that fits.
std::vector<CatalogTensor> settle_quantization(ModelConfig& config, const Tensors& tensors) {
  ModelConfig quantized = config;
  quantized.quantization = config.quantization.value_or(QuantizationConfig{});
  std::vector<CatalogTensor> catalog = tensor_catalog(quantized);
  const bool is_quantized = std::any_of(catalog.begin(), catalog.end(), [&](const CatalogTensor& entry) {
    const auto found = tensors.find(entry.name);
    return found != tensors.end() && (entry.role == TensorRole::kScale ||
                                      (entry.role == TensorRole::kLinear && found->second.dtype == DType::kF8E4M3));
  });
  if (is_quantized) {
    config.quantization = quantized.quantization;
    return catalog;
  }
  config.quantization.reset();
  return tensor_catalog(config);
}

// Tensors that the files need not hold -> the one that stands in for them. A stand-in may have one itself.
std::map<std::string, std::string> stand_ins(const ModelConfig& config) {
  std::map<std::string, std::string> sources;
  if (config.tie_word_embeddings) {
    sources.emplace(kHeadName, kEmbedName);
  }
  for (int64_t k = 0; k < config.num_nextn_predict_layers; ++k) {
    const std::string layer = fmt::format("model.layers.{}.", config.num_hidden_layers + k);
    sources.emplace(layer + "embed_tokens.weight", kEmbedName);
    sources.emplace(layer + "shared_head.head.weight", kHeadName);
  }
  return sources;
}

void check_format(const CatalogTensor& entry,
                  const TensorView& tensor,
                  const Tensors& tensors,
                  const std::string& where) {
  if (tensor.shape != entry.shape) {
    throw_input_error("{}: shape {}, expected {} from config.json",
                      where,
                      printable(shape_text(tensor.shape)),
                      shape_text(entry.shape));
  }
  const std::vector<DType> dtypes = acceptable_dtypes(entry);
  if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
    throw_input_error("{}: dtype {}, expected {}{}",
                      where,
                      dtype_name(tensor.dtype),
                      dtype_name(dtypes.front()),
                      dtypes.size() > 1 ? fmt::format(" or {}", dtype_name(dtypes.back()))
                                        : " as in a checkpoint with FP8 linear weights");
  }
  if (!entry.scale.empty() && !tensors.contains(entry.scale)) {
    throw_input_error("{} is {}, but its scale {} is missing", where, dtype_name(tensor.dtype), entry.scale);
  }
}

// Every tensor of the catalogue is there once and in an acceptable format, and there are no others.
void check_inventory(const std::vector<CatalogTensor>& catalog,
                     const Tensors& tensors,
                     const ModelConfig& config,
                     const std::vector<std::string>& ignored_prefixes,
                     const std::string& origin) {
  std::vector<std::string> missing;
  const auto sources = stand_ins(config);
  std::set<std::string_view> known;
  for (const CatalogTensor& entry : catalog) {
    known.insert(entry.name);
    const auto found = tensors.find(entry.name);
    if (found != tensors.end()) {
      check_format(entry, found->second, tensors, fmt::format("{}: tensor {}", origin, entry.name));
    } else if (!sources.contains(entry.name)) {
      missing.push_back(entry.name);
    }
  }
  std::vector<std::string> unknown;
  for (const auto& tensor : tensors) {
    const std::string& name = tensor.first;
    const bool is_ignored = std::any_of(ignored_prefixes.begin(),
                                        ignored_prefixes.end(),
                                        [&](const std::string& prefix) { return name.starts_with(prefix); });
    if (!is_ignored && !known.contains(name) && !sources.contains(name)) {
      unknown.push_back(name);
    }
  }
  if (!missing.empty() || !unknown.empty()) {
    throw_input_error("{}: not what config.json describes:{}{}{}",
                      origin,
                      missing.empty() ? "" : fmt::format(" {} missing: {}", missing.size(), printable_list(missing)),
                      missing.empty() || unknown.empty() ? "" : ";",
                      unknown.empty() ? "" : fmt::format(" {} unknown: {}", unknown.size(), printable_list(unknown)));
  }
}

// With tied embeddings a head of its own would never be used, so it must not say anything else.
void check_tied_head(const Tensors& tensors, const std::string& origin) {
  const auto head = tensors.find(kHeadName);
  if (head == tensors.end()) {
    return;
  }
  const TensorView& embed = tensors.at(kEmbedName);
  if (head->second.dtype != embed.dtype || head->second.shape != embed.shape ||
      !std::equal(embed.bytes.begin(), embed.bytes.end(), head->second.bytes.begin(), head->second.bytes.end())) {
    throw_input_error("{}: tie_word_embeddings is true, but {} differs from {}", origin, kHeadName, kEmbedName);
  }
}

void check_values(const CatalogTensor& entry, const TensorView& tensor, const std::string& origin) {
  const bool is_scale = entry.role == TensorRole::kScale;
  if (!is_scale && entry.role != TensorRole::kRouterBias) {
    return;
  }
  const int64_t num_values = tensor.size();
  const int64_t step = dtype_bytes(tensor.dtype);
  for (int64_t i = 0; i < num_values; ++i) {
    const double value = decode(tensor.dtype, tensor.bytes.data() + i * step);
    if (!std::isfinite(value) || (is_scale && value <= 0)) {
      const int64_t row_len = tensor.row_len();
      throw_input_error("{}: tensor {}: value {} at {}, expected {}",
                        origin,
                        entry.name,
                        value,
                        shape_text(is_scale ? Shape{i / row_len, i % row_len} : Shape{i}),
                        is_scale ? "a finite positive scale" : "a finite bias");
    }
  }
}

std::string hash_text(std::string_view text) {
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& directory, const std::vector<std::string>& ignored_prefixes)
    : directory_(directory), config_(read_config(directory)) {
  const std::string origin = directory.string();
  const Shards shards = read_shards(directory);
  check_catalog_size(config_, shards.tensors.size(), origin);
  const std::vector<CatalogTensor> catalog = settle_quantization(config_, shards.tensors);
  check_inventory(catalog, shards.tensors, config_, ignored_prefixes, origin);
  for (const CatalogTensor& entry : catalog) {
    const auto found = shards.tensors.find(entry.name);
    if (found != shards.tensors.end()) {
      check_values(entry, found->second, origin);
      tensors_.emplace(entry.name, found->second);
    }
  }
  if (config_.tie_word_embeddings) {
    check_tied_head(shards.tensors, origin);
  }
  const auto sources = stand_ins(config_);
  for (const auto& [name, source] : sources) {
    const auto end = sources.find(source);
    tensors_.emplace(name, tensors_.at(end == sources.end() ? source : end->second));
  }
  header_hash_ = hash_text(std::string(MappedFile::open(directory / "config.json")->text()) + shards.headers);
}

TensorView Checkpoint::weight(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw_input_error("{}: no tensor {}", directory_.string(), printable(name));
  }
  return found->second;
}

}  // namespace model
