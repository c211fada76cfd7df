// The shards of a checkpoint directory and the index that says which shard holds which tensor.
// Knows nothing of the model: names and shapes are the checkpoint's business.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "model/tensor_view.hpp"

namespace model {

struct Shards {
  std::map<std::string, TensorView> tensors;  // of all shards
  std::string headers;                        // JSON texts of all shards, in the order of their file names
};

// Reads model.safetensors.index.json and the shards it names, or a single model.safetensors when there is no index.
// Throws InputError: a shard that is absent, outside the directory or damaged; an index that does not say exactly what is in
// the shards; a tensor in two shards.
Shards read_shards(const std::filesystem::path& directory);

}  // namespace model
