#include "model/shards.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "model/check.hpp"
#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/safetensors.hpp"
#include "model/strict_json.hpp"

namespace model {
namespace {

using nlohmann::json;
using WeightMap = std::map<std::string, std::string>;  // tensor -> file name

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
// Kimi-K2, with 140,000 tensors, needs 15 MB.
constexpr size_t kMaxIndexBytes = 32'000'000;
// {"weight_map": {...}}; the metadata object may hold a little more.
constexpr size_t kIndexDepth = 8;

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

WeightMap read_weight_map(const std::filesystem::path& path) {
  const std::string origin = path.string();
  const auto file = MappedFile::open(path);
  if (file->bytes().size() > kMaxIndexBytes) {
    throw_input_error("{}: {} bytes, expected at most {}", origin, file->bytes().size(), kMaxIndexBytes);
  }
  const json fields = parse_strict_json(file->text(), origin, kIndexDepth);
  if (!fields.is_object() || !fields.contains("weight_map") || !fields["weight_map"].is_object()) {
    throw_input_error("{}: expected an object with a weight_map object", origin);
  }
  WeightMap weight_map;
  for (const auto& [name, shard] : fields["weight_map"].items()) {
    if (!shard.is_string()) {
      throw_input_error(
          "{}: tensor {}: expected a file name, found {}", origin, printable(name), printable(shard.dump()));
    }
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (!is_plain_file_name(shard_name)) {
      throw_input_error("{}: tensor {}: shard \"{}\" points outside the checkpoint, expected a plain file name",
                        origin,
                        printable(name),
                        printable(shard_name));
    }
    weight_map.emplace(name, shard_name);
  }
  return weight_map;
}

std::set<std::string> shard_names(const WeightMap& weight_map, const std::filesystem::path& directory) {
  std::set<std::string> names;
  for (const auto& [tensor, shard] : weight_map) {
    names.insert(shard);
  }
  std::vector<std::string> absent;
  for (const std::string& name : names) {
    std::error_code error;
    if (!std::filesystem::exists(directory / name, error)) {
      absent.push_back(name);
    }
  }
  if (!absent.empty()) {
    throw_input_error("{}: {} of the {} shards in {} are not there: {}",
                      directory.string(),
                      absent.size(),
                      names.size(),
                      kIndexName,
                      printable_list(absent));
  }
  return names;
}

// Both directions: what the shards hold is in the index, and what the index promises is in the shards.
void check_index(const WeightMap& weight_map, const WeightMap& found, const std::string& origin) {
  for (const auto& [tensor, shard] : found) {
    const auto promised = weight_map.find(tensor);
    if (promised == weight_map.end()) {
      throw_input_error("{}: tensor {} of shard {} is not in the index", origin, printable(tensor), printable(shard));
    }
    if (promised->second != shard) {
      throw_input_error("{}: the index places tensor {} in {}, but it is in {}",
                        origin,
                        printable(tensor),
                        printable(promised->second),
                        printable(shard));
    }
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (!found.contains(tensor)) {
      throw_input_error(
          "{}: the index places tensor {} in {}, which does not hold it", origin, printable(tensor), printable(shard));
    }
  }
}

}  // namespace

Shards read_shards(const std::filesystem::path& directory) {
  const std::filesystem::path index = directory / kIndexName;
  std::error_code error;
  if (!std::filesystem::exists(index, error)) {
    if (!std::filesystem::exists(directory / kSingleName, error)) {
      throw_input_error("{}: no weights: expected {} or {}", directory.string(), kIndexName, kSingleName);
    }
    SafetensorsFile file = read_safetensors(directory / kSingleName);
    return {std::move(file.tensors), std::move(file.header)};
  }
  const WeightMap weight_map = read_weight_map(index);
  Shards shards;
  WeightMap found;
  for (const std::string& name : shard_names(weight_map, directory)) {
    SafetensorsFile file = read_safetensors(directory / name);
    for (auto& [tensor, view] : file.tensors) {
      const auto [earlier, is_new] = found.emplace(tensor, name);
      if (!is_new) {
        throw_input_error("{}: tensor {} is in two shards, {} and {}",
                          directory.string(),
                          printable(tensor),
                          printable(earlier->second),
                          printable(name));
      }
      shards.tensors.emplace(tensor, std::move(view));
    }
    shards.headers += file.header;
  }
  check_index(weight_map, found, directory.string());
  return shards;
}

}  // namespace model
