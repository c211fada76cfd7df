#include "tests/fuzz/targets.hpp"

#include <algorithm>
#include <string>

#include "golden/formats/map_file.hpp"
#include "golden/manifest_json.hpp"
#include "golden/pickle.hpp"
#include "golden/torch_file.hpp"
#include "model/check.hpp"
#include "model/config.hpp"
#include "model/safetensors.hpp"
#include "model/shards.hpp"
#include "model/tensor_catalog.hpp"
#include "reference/tensor_core/recipe_file.hpp"
#include "tests/temp_dir.hpp"
#include "text/tokenizer.hpp"

namespace fuzz {
namespace {

// One folder for the life of the process; the file of the input before is overwritten.
std::filesystem::path in_folder(const std::string& name) {
  static const TempDir folder;
  return folder / name;
}

std::filesystem::path written(const std::string& name, std::string_view bytes) {
  auto path = in_folder(name);
  write_bytes(path, std::string(bytes));
  return path;
}

// Reads every byte of a tensor, so that one outside the file is noticed.
void touch(const model::TensorView& tensor) {
  static volatile unsigned sum = 0;
  for (const std::byte byte : tensor.bytes) {
    sum = sum + static_cast<unsigned>(byte);
  }
}

void read_safetensors(std::string_view bytes) {
  for (const auto& [name, tensor] : model::read_safetensors(written("x.safetensors", bytes)).tensors) {
    touch(tensor);
  }
}

// The index of a directory that holds one shard, a.safetensors, with one tensor, w.
void read_index(std::string_view bytes) {
  static const bool kIsShardWritten = [] {
    std::string header = R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    written("a.safetensors",
            std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "12345678");
    return true;
  }();
  CHECK(kIsShardWritten);
  (void)model::read_shards(written("model.safetensors.index.json", bytes).parent_path());
}

void read_config(std::string_view bytes) {
  (void)model::tensor_catalog(model::parse_config(bytes, "config.json"));
}

void read_tokenizer(std::string_view bytes) {
  const auto tokenizer = text::Tokenizer::load(written("tokenizer.json", bytes).parent_path());
  const std::string_view kText =
      "In the beginning, 1234  \n\n it's \xC3\xA9t\xC3\xA9 <|x|>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  if (tokenizer.decode(tokenizer.encode(kText)).size() > (size_t{1} << 20)) {
    throw std::logic_error("decoded text is absurdly long");
  }
}

void read_manifest(std::string_view bytes) {
  (void)golden::parse_manifest(bytes, "x.safetensors: manifest");
}

void read_map(std::string_view bytes) {
  (void)golden::parse_map(bytes, "map.json");
}

void read_pickle(std::string_view bytes) {
  (void)golden::read_pickle(std::as_bytes(std::span(bytes)), "x.pt");
}

void read_torch(std::string_view bytes) {
  for (const auto& [name, tensor] : golden::read_torch_file(written("x.pt", bytes))) {
    touch(tensor);
  }
}

void read_arithmetic(std::string_view bytes) {
  (void)reference::tensor_core::parse_arithmetic(bytes, "arithmetic.json");
}

bool is_one_short_line(std::string_view message) {
  constexpr size_t kMaxLen = 2000;
  return !message.empty() && message.size() <= kMaxLen &&
         std::ranges::none_of(message, [](unsigned char symbol) { return symbol < ' ' || symbol == 0x7F; });
}

}  // namespace

const std::vector<Target>& targets() {
  static const std::vector<Target> kTargets{{"arithmetic", read_arithmetic},
                                            {"config", read_config},
                                            {"index", read_index},
                                            {"manifest", read_manifest},
                                            {"map", read_map},
                                            {"pickle", read_pickle},
                                            {"safetensors", read_safetensors},
                                            {"tokenizer", read_tokenizer},
                                            {"torch", read_torch}};
  return kTargets;
}

const Target& target(std::string_view name) {
  const auto found = std::ranges::find(targets(), name, &Target::name);
  CHECK(found != targets().end());
  return *found;
}

bool takes(const Target& target, std::string_view bytes) {
  try {
    target.read(bytes);
    return true;
  } catch (const model::InputError& error) {
    if (!is_one_short_line(error.what())) {
      throw std::logic_error(std::string("not one short line: ") + error.what());
    }
    return false;
  }
}

}  // namespace fuzz
