#include "tools/export.hpp"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/atomic_file.hpp"
#include "model/check.hpp"
#include "model/safetensors.hpp"
#include "model/tensor_catalog.hpp"
#include "reference/numerics/bf16.hpp"
#include "reference/weight_matrix.hpp"

namespace tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kMinShards = 4;
constexpr int64_t kMaxShardBytes = int64_t{1} << 30;
// Each third scale moves on to the next shard.
constexpr size_t kMovedScales = 3;

// FP8 weights as BF16(FP32(code * scale)); everything else as it is.
class DequantisedWeights : public model::WeightSource {
 public:
  explicit DequantisedWeights(const model::WeightSource& original) : original_(original), config_(original.config()) {
    config_.quantization.reset();
  }

  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    auto stored = original_.weight(name);
    if (stored.dtype != model::DType::kF8E4M3) {
      return stored;
    }
    const reference::WeightMatrix matrix(original_, name);
    std::vector<float> row(static_cast<size_t>(matrix.in_dim()));
    std::vector<uint16_t> codes;
    codes.reserve(static_cast<size_t>(stored.size()));
    for (int64_t r = 0; r < matrix.out_dim(); ++r) {
      matrix.row(r, row);
      std::ranges::transform(row, std::back_inserter(codes), reference::encode_bf16);
    }
    return model::make_tensor(model::DType::kBF16, stored.shape, std::move(codes));
  }

 private:
  const model::WeightSource& original_;
  model::ModelConfig config_;
};

// The same weights under a config of fewer layers.
class FirstLayers : public model::WeightSource {
 public:
  FirstLayers(const model::WeightSource& original, int64_t num_layers)
      : original_(original), config_(original.config()) {
    if (num_layers < 1 || num_layers > config_.num_hidden_layers) {
      model::throw_input_error("--layers {}: the model has 1 to {}", num_layers, config_.num_hidden_layers);
    }
    config_.num_hidden_layers = num_layers;
    config_.num_nextn_predict_layers = 0;
  }

  [[nodiscard]] const model::ModelConfig& config() const override { return config_; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override { return original_.weight(name); }

 private:
  const model::WeightSource& original_;
  model::ModelConfig config_;
};

// A directory that is removed unless it got its final name.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const fs::path& target) : target_(target) {
    path_ = fs::path(target.string() + fmt::format(".{}.tmp", ::getpid()));
    std::error_code error;
    if (!fs::create_directory(path_, error)) {
      model::throw_input_error(
          "{}: cannot create a directory there{}", path_.string(), error ? ": " + error.message() : "");
    }
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  void commit() const {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) {
      model::throw_input_error("{}: cannot be created: {}", target_.string(), error.message());
    }
  }

 private:
  fs::path target_;
  fs::path path_;
};

void write_text(const fs::path& path, const std::string& text) {
  model::AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

int64_t stored_bytes(const model::CatalogTensor& tensor) {
  return model::num_elements(tensor.shape) * model::dtype_bytes(tensor.dtype);
}

// Shard of each tensor: by bytes in the order of the catalogue.
std::vector<size_t> shard_of_each(const std::vector<model::CatalogTensor>& catalog,
                                  int64_t total_bytes,
                                  int64_t num_shards) {
  std::vector<size_t> shards;
  int64_t begin = 0;
  size_t num_scales = 0;
  for (const auto& tensor : catalog) {
    auto shard = static_cast<size_t>(begin * num_shards / total_bytes);
    begin += stored_bytes(tensor);
    if (tensor.role == model::TensorRole::kScale && num_scales++ % kMovedScales == 0) {
      shard = (shard + 1) % static_cast<size_t>(num_shards);
    }
    shards.push_back(shard);
  }
  return shards;
}

ordered_json rope_scaling(const model::YarnConfig& yarn) {
  return {{"beta_fast", yarn.beta_fast},
          {"beta_slow", yarn.beta_slow},
          {"factor", yarn.factor},
          {"mscale", yarn.mscale},
          {"mscale_all_dim", yarn.mscale_all_dim},
          {"original_max_position_embeddings", yarn.original_max_position_embeddings},
          {"type", "yarn"}};
}

std::string_view method_name(model::TopkMethod method) {
  switch (method) {
    case model::TopkMethod::kNoauxTc: return "noaux_tc";
    case model::TopkMethod::kGroupLimitedGreedy: return "group_limited_greedy";
    case model::TopkMethod::kGreedy: return "greedy";
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown top-k method");
}

ordered_json quantization_fields(const model::QuantizationConfig& quantization) {
  ordered_json fields{{"activation_scheme", "dynamic"},
                      {"fmt", "e4m3"},
                      {"quant_method", "fp8"},
                      {"weight_block_size", ordered_json::array({quantization.block_rows, quantization.block_cols})}};
  if (quantization.scale_fmt == model::ScaleFormat::kUe8m0) {
    fields["scale_fmt"] = "ue8m0";
  }
  return fields;
}

void write_shards(const model::WeightSource& weights, const fs::path& directory) {
  const auto catalog = model::tensor_catalog(weights.config());
  int64_t total_bytes = 0;
  for (const auto& tensor : catalog) {
    total_bytes += stored_bytes(tensor);
  }
  const int64_t num_shards = std::max(kMinShards, (total_bytes + kMaxShardBytes - 1) / kMaxShardBytes);
  const auto shards = shard_of_each(catalog, total_bytes, num_shards);
  ordered_json weight_map = ordered_json::object();
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    const std::string file = fmt::format("model-{:05}-of-{:06}.safetensors", shard + 1, num_shards);
    std::vector<std::pair<std::string, model::TensorView>> contents;
    for (size_t i = 0; i < catalog.size(); ++i) {
      if (shards[i] == static_cast<size_t>(shard)) {
        contents.emplace_back(catalog[i].name, weights.weight(catalog[i].name));
        weight_map[catalog[i].name] = file;
      }
    }
    model::write_safetensors(directory / file, contents, {{"format", "pt"}});
  }
  const ordered_json index{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  write_text(directory / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

std::string config_text(const model::ModelConfig& config) {
  ordered_json fields{
      {"architectures", ordered_json::array({"DeepseekV3ForCausalLM"})},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"first_k_dense_replace", config.first_k_dense_replace},
      {"hidden_act", "silu"},
      {"hidden_size", config.hidden_size},
      {"initializer_range", 0.02},
      {"intermediate_size", config.intermediate_size},
      {"kv_lora_rank", config.kv_lora_rank},
      {"max_position_embeddings", config.max_position_embeddings},
      {"model_type", config.model_type},
      {"moe_intermediate_size", config.moe_intermediate_size},
      {"moe_layer_freq", config.moe_layer_freq},
      {"n_group", config.n_group},
      {"n_routed_experts", config.n_routed_experts},
      {"n_shared_experts", config.n_shared_experts},
      {"norm_topk_prob", config.norm_topk_prob},
      {"num_attention_heads", config.num_attention_heads},
      {"num_experts_per_tok", config.num_experts_per_tok},
      {"num_hidden_layers", config.num_hidden_layers},
      {"num_key_value_heads", config.num_attention_heads},
      {"num_nextn_predict_layers", config.num_nextn_predict_layers},
      {"q_lora_rank", config.q_lora_rank ? ordered_json(*config.q_lora_rank) : ordered_json()},
      {"qk_nope_head_dim", config.qk_nope_head_dim},
      {"qk_rope_head_dim", config.qk_rope_head_dim},
      {"rms_norm_eps", config.rms_norm_eps},
      {"rope_scaling", config.yarn ? rope_scaling(*config.yarn) : ordered_json()},
      {"rope_theta", config.rope_theta},
      {"routed_scaling_factor", config.routed_scaling_factor},
      {"scoring_func", config.scoring_func == model::ScoringFunction::kSigmoid ? "sigmoid" : "softmax"},
      {"tie_word_embeddings", config.tie_word_embeddings},
      {"topk_group", config.topk_group},
      {"topk_method", method_name(config.topk_method)},
      {"torch_dtype", "bfloat16"},
      {"use_cache", true},
      {"v_head_dim", config.v_head_dim},
      {"vocab_size", config.vocab_size},
  };
  if (config.bos_token_id) {
    fields["bos_token_id"] = *config.bos_token_id;
  }
  if (config.eos_token_ids.size() == 1) {
    fields["eos_token_id"] = config.eos_token_ids.front();
  } else if (!config.eos_token_ids.empty()) {
    fields["eos_token_id"] = config.eos_token_ids;
  }
  if (config.quantization) {
    fields["quantization_config"] = quantization_fields(*config.quantization);
  }
  return fields.dump(2) + "\n";
}

namespace {

void write_checkpoint(const model::WeightSource& weights,
                      const fs::path& directory,
                      const std::vector<fs::path>& files) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(directory, error))) {
    model::throw_input_error("{}: exists already, expected a new directory", directory.string());
  }
  const TemporaryDirectory temporary(directory);
  write_text(temporary.path() / "config.json", config_text(weights.config()));
  write_shards(weights, temporary.path());
  for (const fs::path& file : files) {
    if (!fs::copy_file(file, temporary.path() / file.filename(), error)) {
      model::throw_input_error("{}: cannot be copied: {}", file.string(), error.message());
    }
  }
  temporary.commit();
}

}  // namespace

void export_checkpoint(const model::WeightSource& weights, const fs::path& directory, bool as_bf16) {
  const DequantisedWeights dequantised(weights);
  write_checkpoint(as_bf16 ? static_cast<const model::WeightSource&>(dequantised) : weights, directory, {});
}

void truncate_checkpoint(const model::WeightSource& weights,
                         int64_t num_layers,
                         const fs::path& source,
                         const fs::path& directory) {
  std::vector<fs::path> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    if (fs::exists(source / name)) {
      files.push_back(source / name);
    }
  }
  write_checkpoint(FirstLayers(weights, num_layers), directory, files);
}

}  // namespace tools
