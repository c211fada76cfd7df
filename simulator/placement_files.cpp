#include "simulator/placement_files.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/check.hpp"

namespace simulator {
namespace {

void check_full(const std::vector<Placement>& layers) {
  CHECK(!layers.empty());
  for (const Placement& placement : layers) {
    check_placement(placement);
    if (std::ranges::find(placement.expert_of_slot, Placement::kEmptySlot) != placement.expert_of_slot.end()) {
      model::throw_input_error(
          "placement: engines' files have no empty slots; redundant experts (--redundant) would work");
    }
  }
}

}  // namespace

std::string sglang_expert_location(const std::vector<Placement>& layers, int64_t first_moe_layer) {
  check_full(layers);
  auto rows = nlohmann::ordered_json::array();
  const Placement& first = layers.front();
  for (int64_t layer = 0; layer < first_moe_layer; ++layer) {
    rows.push_back(contiguous_placement(first.num_experts, first.num_ranks, first.num_slots(), true).expert_of_slot);
  }
  for (const Placement& placement : layers) {
    rows.push_back(placement.expert_of_slot);
  }
  return nlohmann::ordered_json{{"physical_to_logical_map", rows}}.dump() + "\n";
}

std::string vllm_expert_map(const std::vector<Placement>& layers) {
  check_full(layers);
  auto list = nlohmann::ordered_json::array();
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const Placement& placement = layers[layer];
    auto devices = nlohmann::ordered_json::array();
    for (int64_t rank = 0; rank < placement.num_ranks; ++rank) {
      const auto begin = placement.expert_of_slot.begin() + rank * placement.slots_per_rank();
      devices.push_back(
          {{"device_id", rank}, {"device_expert", std::vector<int64_t>(begin, begin + placement.slots_per_rank())}});
    }
    list.push_back({{"layer_id", layer}, {"device_count", placement.num_ranks}, {"device_list", devices}});
  }
  return nlohmann::ordered_json{{"moe_layer_count", layers.size()}, {"layer_list", list}}.dump() + "\n";
}

}  // namespace simulator
