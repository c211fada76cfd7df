// A computed placement in the files that serving engines read, and back.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "simulator/placement.hpp"

namespace simulator {

// SGLang, --init-expert-location FILE.json: {"physical_to_logical_map": [[expert of each slot] for each MoE layer]}. SGLang indexes all
// decoder layers: `first_moe_layer` dense ones in front get the trivial map. Empty slots cannot be said there.
// Throws InputError for an empty slot.
std::string sglang_expert_location(const std::vector<Placement>& layers, int64_t first_moe_layer);

// vLLM's Ascend plugin, expert_map_path: {"moe_layer_count", "layer_list": [{"layer_id", "device_count", "device_list": [{"device_id",
// "device_expert": [...]}]}]}, MoE layers only. vLLM itself computes its placement and reads none; it takes the same number of slots as
// --eplb-config num_redundant_experts. Throws InputError for an empty slot.
std::string vllm_expert_map(const std::vector<Placement>& layers);

// The expert in each slot, rank 0's slots first, of the last `num_moe_layers` layers of either file, told apart by its names. What they
// mean is not checked beyond being whole numbers. Throws InputError that names the file, the place and what was expected there.
std::vector<std::vector<int64_t>> read_expert_slots(const std::filesystem::path& path, int64_t num_moe_layers);

}  // namespace simulator
