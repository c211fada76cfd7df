// The catalogue against checkpoints that other people's code wrote: the same names, shapes and formats, none missing, none extra.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "model/tensor_catalog.hpp"
#include "tests/shared_data.hpp"
#include "tests/temp_dir.hpp"

namespace model {
namespace {

using nlohmann::json;

// Name -> "dtype shape" of every tensor, read from the shards' headers that the index lists.
std::map<std::string, std::string> stored_tensors(const std::filesystem::path& directory) {
  const json index = json::parse(read_bytes(directory / "model.safetensors.index.json"));
  std::set<std::string> files;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    files.insert(file.get<std::string>());
  }
  std::map<std::string, std::string> tensors;
  for (const std::string& file : files) {
    const std::string bytes = read_bytes(directory / file);
    uint64_t header_len = 0;
    std::memcpy(&header_len, bytes.data(), sizeof(header_len));
    const json header = json::parse(bytes.substr(8, header_len));
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") {
        EXPECT_EQ(index.at("weight_map").at(name), file);
        tensors[name] = entry.at("dtype").get<std::string>() + " " + entry.at("shape").dump();
      }
    }
  }
  EXPECT_EQ(tensors.size(), index.at("weight_map").size());
  return tensors;
}

std::map<std::string, std::string> catalog_tensors(const std::filesystem::path& directory) {
  std::map<std::string, std::string> tensors;
  for (const CatalogTensor& tensor : tensor_catalog(read_config(directory))) {
    tensors[tensor.name] = std::string(dtype_name(tensor.dtype)) + " " + json(tensor.shape).dump();
  }
  return tensors;
}

void expect_exactly_the_catalogue(const std::string& fixture) {
  const auto directory = shared_data("oracle/" + fixture + "/checkpoint");
  SKIP_UNLESS_THERE(directory);
  EXPECT_EQ(catalog_tensors(*directory), stored_tensors(*directory));
  EXPECT_TRUE(read_config(*directory).unknown_keys.empty());
}

TEST(TensorCatalogOracle, Mini_HoldsExactlyTheCatalogue) {
  expect_exactly_the_catalogue("mini");
}

TEST(TensorCatalogOracle, Nano_HoldsExactlyTheCatalogue) {
  expect_exactly_the_catalogue("nano");
}

TEST(TensorCatalogOracle, Ragged_HoldsExactlyTheCatalogue) {
  expect_exactly_the_catalogue("ragged");
}

TEST(TensorCatalogOracle, NotV3_HoldsExactlyTheCatalogue) {
  expect_exactly_the_catalogue("notv3");
}

}  // namespace
}  // namespace model
