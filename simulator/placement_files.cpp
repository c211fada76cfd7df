#include "simulator/placement_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "simulator/json_file.hpp"

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

using nlohmann::json;

// A list of whole numbers, appended.
void add_numbers(std::vector<int64_t>& numbers, const json& list, const std::string& where) {
  if (!list.is_array() || !std::ranges::all_of(list, [](const json& item) { return item.is_number_integer(); })) {
    model::throw_input_error("{}: expected a list of experts", where);
  }
  for (const json& item : list) {
    numbers.push_back(item.get<int64_t>());
  }
}

const json& list_of(const json& object, const char* name, const std::string& where) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_array()) {
    model::throw_input_error("{}: expected a list \"{}\"", where, name);
  }
  return object[name];
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

std::vector<std::vector<int64_t>> read_expert_slots(const std::filesystem::path& path, int64_t num_moe_layers) {
  const json document = read_json_file(path);
  const std::string where = path.string();
  std::vector<std::vector<int64_t>> layers;
  if (document.is_object() && document.contains("layer_list")) {
    for (const json& layer : list_of(document, "layer_list", where)) {
      const std::string layer_name = fmt::format("{}: layer_list {}", where, layers.size());
      auto& slots = layers.emplace_back();
      for (const json& device : list_of(layer, "device_list", layer_name)) {
        add_numbers(slots, list_of(device, "device_expert", layer_name), layer_name);
      }
    }
  } else {
    for (const json& layer : list_of(document, "physical_to_logical_map", where)) {
      add_numbers(layers.emplace_back(), layer, fmt::format("{}: physical_to_logical_map {}", where, layers.size()));
    }
  }
  if (static_cast<int64_t>(layers.size()) < num_moe_layers) {
    model::throw_input_error("{}: {} layers, the model has {} with experts", where, layers.size(), num_moe_layers);
  }
  layers.erase(layers.begin(), layers.end() - num_moe_layers);
  return layers;
}

}  // namespace simulator
