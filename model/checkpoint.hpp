// A checkpoint directory in Hugging Face layout: config.json, safetensors shards and their index, memory-mapped.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/safetensors.hpp"
#include "model/weight_source.hpp"

namespace model {

class Checkpoint : public WeightSource {
 public:
  // Opens every shard and holds it against the catalogue: each tensor found exactly once, none unknown (a tensor whose name
  // starts with one of `ignored_prefixes` may be there), shapes and formats as the role demands, scale companions on the right
  // grid with finite positive values, finite router biases. MTP copies of embedding and head may be absent: they then alias the
  // main ones, as a head tied to the embedding does. Without an index, a single model.safetensors is accepted.
  // Where the linear weights and the config's quantization disagree, the weights decide: config() then says what they are.
  // Throws InputError.
  explicit Checkpoint(const std::filesystem::path& directory, const std::vector<std::string>& ignored_prefixes = {});

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] TensorView weight(const std::string& name) const override;
  [[nodiscard]] bool keeps_tensors() const override { return true; }
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  // XXH3-64 of config.json and of every shard's header, 16 hex digits: identifies the checkpoint cheaply.
  [[nodiscard]] const std::string& header_hash() const { return header_hash_; }

 private:
  std::filesystem::path directory_;
  ModelConfig config_;
  std::map<std::string, TensorView> tensors_;
  std::string header_hash_;
};

}  // namespace model
