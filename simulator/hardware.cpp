#include "simulator/hardware.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "model/printable.hpp"
#include "model/strict_json.hpp"
#include "simulator/hardware_files.hpp"

namespace simulator {
namespace {

constexpr uintmax_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxDepth = 8;

std::optional<Figure> read_figure(model::JsonFields& fields, const std::string& key) {
  std::optional<model::JsonFields> object = fields.object(key);
  if (!object) {
    return std::nullopt;
  }
  Figure figure{.value = object->positive_number("value"), .source = object->text_or("source", "")};
  if (figure.source.empty()) {
    object->refuse("source", "expected where the figure comes from");
  }
  return figure;
}

Figure required_figure(model::JsonFields& fields, const std::string& key) {
  std::optional<Figure> figure = read_figure(fields, key);
  if (!figure) {
    fields.refuse(key, "expected {\"value\": number, \"source\": text}");
  }
  return *figure;
}

Generation generation_of(const Hardware& hardware) {
  constexpr double kBlackwellNvlink = 800;
  if (!hardware.fp8_dense_tflops) {
    return Generation::kBeforeFp8;
  }
  return hardware.nvlink_gb_per_s.value >= kBlackwellNvlink ? Generation::kBlackwell : Generation::kHopper;
}

}  // namespace

Hardware parse_hardware(std::string_view json_text, const std::string& name, const std::string& origin) {
  const nlohmann::json document = model::parse_strict_json(json_text, origin, kMaxDepth);
  if (!document.is_object()) {
    model::throw_input_error("{}: expected a JSON object of hardware figures", origin);
  }
  model::JsonFields fields(document, origin, "");
  Hardware hardware{.name = name,
                    .title = fields.text_or("title", name),
                    .bf16_dense_tflops = required_figure(fields, "bf16_dense_tflops"),
                    .fp8_dense_tflops = read_figure(fields, "fp8_dense_tflops"),
                    .memory_gb = required_figure(fields, "memory_gb"),
                    .memory_gb_per_s = required_figure(fields, "memory_gb_per_s"),
                    .nvlink_gb_per_s = required_figure(fields, "nvlink_gb_per_s"),
                    .nvlink_domain_gpus = required_figure(fields, "nvlink_domain_gpus"),
                    .nic_gb_per_s = required_figure(fields, "nic_gb_per_s")};
  hardware.generation = generation_of(hardware);
  const double domain = hardware.nvlink_domain_gpus.value;
  if (domain > 1 << 20 || domain != static_cast<double>(static_cast<int64_t>(domain))) {
    fields.refuse("nvlink_domain_gpus", "expected a whole number of GPUs");
  }
  if (const std::vector<std::string> unread = fields.unread_keys(); !unread.empty()) {
    fields.fail(fmt::format("unknown fields: {}", model::printable_list(unread)));
  }
  return hardware;
}

namespace {

// Parsed once: tables name their GPUs, and a search looks those up again and again.
const std::vector<Hardware>& built_in_hardware() {
  static const std::vector<Hardware> kBuiltIn = [] {
    std::vector<Hardware> all;
    for (const HardwareFile& file : hardware_files()) {
      all.push_back(parse_hardware(file.json_text, std::string(file.name), fmt::format("hardware {}", file.name)));
    }
    return all;
  }();
  return kBuiltIn;
}

}  // namespace

std::string built_in_hardware_names() {
  std::string names;
  for (const HardwareFile& file : hardware_files()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", file.name);
  }
  return names;
}

Hardware load_hardware(const std::string& name_or_path) {
  const std::vector<Hardware>& built_in = built_in_hardware();
  const auto found = std::ranges::find(built_in, name_or_path, &Hardware::name);
  if (found != built_in.end()) {
    return *found;
  }
  const std::filesystem::path path(name_or_path);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    model::throw_input_error("hardware {}: expected {}, or the path of a hardware file",
                             model::printable(name_or_path),
                             built_in_hardware_names());
  }
  if (std::filesystem::file_size(path, error) > kMaxFileBytes) {
    model::throw_input_error("{}: expected a hardware file of at most {} bytes", path.string(), kMaxFileBytes);
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream || !text) {
    model::throw_input_error("{}: cannot be read", path.string());
  }
  return parse_hardware(text.str(), path.stem().string(), path.string());
}

}  // namespace simulator
