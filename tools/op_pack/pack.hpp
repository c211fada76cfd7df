// An op pack: one op in isolation, with its inputs, its weights, its output and the bound of every element, in one file.
// docs/op-packs.md.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "model/estimate.hpp"
#include "model/tensor_view.hpp"

namespace tools::op_pack {

// A tensor that the op gives. The main output has no name, others are called by theirs: output.scales.
struct PackOutput {
  std::string name;
  model::TensorView stored;
  model::Estimate estimate;  // before the last rounding; without elements for ids, which are judged by the masks
};

struct OpPack {
  nlohmann::ordered_json
      facts;  // kind, shape, rules, constants that a kernel needs; outputs are added when it is written
  std::vector<std::pair<std::string, model::TensorView>> inputs;  // weights, and for a router its masks, included
  std::vector<PackOutput> outputs;                                // the main one first
};

// "output" of output "" and "output.scales" of output "scales".
std::string tensor_name(const std::string& stem, const std::string& output);

// Throws InputError if the place cannot be written.
void write_pack(const std::filesystem::path& path, const OpPack& pack);
// Throws InputError: not safetensors, or not an op pack.
OpPack read_pack(const std::filesystem::path& path);

}  // namespace tools::op_pack
