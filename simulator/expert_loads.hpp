// Measured loads: how many token copies each expert of each layer got.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace simulator {

// [layers][num_experts]. Accepted:
// - CSV with the columns `layer`, `expert` and `count` (or `tokens`, `load`), or with `layer` and one column for each expert
//   (`expert_0`, ...; `e0`, ...; `0`, ...). Rows of the same layer are added up. Without `layer`, each row is a layer.
// - JSON: {"logical_count": ...} as SGLang's --init-expert-location and expert distribution recorder have it, or the array alone as
//   EPLB takes it: [layers][experts], or [steps][layers][experts], whose steps are added up.
// Every layer needs the same number of experts; layers without any count (dense ones) are left out. Throws InputError naming file and line or field; for a .pt file
// it says how to write the JSON.
std::vector<std::vector<double>> read_expert_loads(const std::filesystem::path& path);

// Loads of a routing trace (routing_trace.hpp). Throws InputError.
std::vector<std::vector<double>> read_routing_trace(const std::filesystem::path& path);

}  // namespace simulator
