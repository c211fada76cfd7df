// A computed placement in the files that serving engines read.
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

}  // namespace simulator
