// Writes weights as a checkpoint directory in Hugging Face layout: config.json, shards and their index.
#pragma once

#include <filesystem>
#include <string>

#include "model/weight_source.hpp"

namespace tools {

// The keys of a Hugging Face config.json, so that other engines read it too.
[[nodiscard]] std::string config_text(const model::ModelConfig& config);

// Writes all tensors of the catalogue into a directory beside `directory`, which is then renamed: it is there whole or not at all.
// One shard is in memory at a time. Some scales lie in another shard than their weight, as in published checkpoints.
// With `as_bf16`, FP8 weights become BF16(FP32(code * scale)) and there are no scales.
// Throws InputError if `directory` exists or cannot be written.
void export_checkpoint(const model::WeightSource& weights, const std::filesystem::path& directory, bool as_bf16);

// Writes the first `num_layers` layers of a checkpoint, with embedding, final norm and head, and without MTP layers, as a checkpoint of
// its own; tokenizer files of `source` go along. Throws InputError: a number of layers that the model does not have; as
// export_checkpoint.
void truncate_checkpoint(const model::WeightSource& weights,
                         int64_t num_layers,
                         const std::filesystem::path& source,
                         const std::filesystem::path& directory);

}  // namespace tools
