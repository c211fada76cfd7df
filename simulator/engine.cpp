#include "simulator/engine.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "model/check.hpp"
#include "model/json_fields.hpp"
#include "model/printable.hpp"
#include "model/strict_json.hpp"
#include "simulator/data_files.hpp"
#include "simulator/json_file.hpp"

namespace simulator {
namespace {

constexpr size_t kMaxDepth = 8;

struct NamedConstant {
  const char* name;
  double EngineProfile::*member;
};

constexpr std::array kConstants{NamedConstant{"stream_factor", &EngineProfile::stream_factor},
                                NamedConstant{"host_us", &EngineProfile::host_us},
                                NamedConstant{"prefill_factor", &EngineProfile::prefill_factor},
                                NamedConstant{"b300_scores_factor", &EngineProfile::b300_scores_factor},
                                NamedConstant{"b300_scores_us", &EngineProfile::b300_scores_us},
                                NamedConstant{"early_blackwell_layer_us", &EngineProfile::early_blackwell_layer_us},
                                NamedConstant{"log_spread", &EngineProfile::log_spread}};

std::vector<EngineProfile> built_in_engines() {
  return parse_engines(model::parse_strict_json(data_file("calibration/engines.json"), "built-in engines", kMaxDepth),
                       "built-in engines");
}

}  // namespace

std::vector<EngineProfile> parse_engines(const nlohmann::json& document, const std::string& origin) {
  if (!document.is_object() || document.empty()) {
    model::throw_input_error("{}: expected an object with the constants of each engine", origin);
  }
  model::JsonFields names(document, origin, "");
  std::vector<EngineProfile> engines;
  for (const auto& [name, unused] : document.items()) {
    std::optional<model::JsonFields> fields = names.object(name);
    if (!fields) {
      names.refuse(name, "expected an object of constants");
    }
    EngineProfile engine{
        .name = name, .measured_on = fields->text_or("measured_on", ""), .source = fields->text_or("source", "")};
    for (const NamedConstant& constant : kConstants) {
      engine.*constant.member = fields->non_negative_number_or(constant.name, engine.*constant.member);
    }
    if (const std::vector<std::string> unread = fields->unread_keys(); !unread.empty()) {
      fields->fail("unknown fields: " + model::printable_list(unread));
    }
    engines.push_back(std::move(engine));
  }
  return engines;
}

std::string engines_json(const std::vector<EngineProfile>& engines) {
  nlohmann::ordered_json document;
  for (const EngineProfile& engine : engines) {
    nlohmann::ordered_json& object = document[engine.name];
    for (const NamedConstant& constant : kConstants) {
      object[constant.name] = engine.*constant.member;
    }
    object["measured_on"] = engine.measured_on;
    object["source"] = engine.source;
  }
  return document.dump(1) + "\n";
}

std::string engine_names() {
  std::string names;
  for (const EngineProfile& engine : built_in_engines()) {
    names += (names.empty() ? "" : ", ") + engine.name;
  }
  return names;
}

EngineProfile load_engine(const std::string& name) {
  if (name.ends_with(".json")) {
    const std::vector<EngineProfile> engines = parse_engines(read_json_file(name), name);
    if (engines.size() != 1) {
      model::throw_input_error("--engine {}: holds {} engines, expected one", model::printable(name), engines.size());
    }
    return engines.front();
  }
  const std::vector<EngineProfile> engines = built_in_engines();
  const auto found = std::ranges::find(engines, name, &EngineProfile::name);
  if (found == engines.end()) {
    model::throw_input_error(
        "--engine {}: expected one of {}, or a file that calibrate wrote", model::printable(name), engine_names());
  }
  return *found;
}

bool is_measured_on(const EngineProfile& engine, const Hardware& hardware) {
  return engine.measured_on == "any" || engine.measured_on == hardware.name ||
         (engine.measured_on == "blackwell" && hardware.generation == Generation::kBlackwell);
}

}  // namespace simulator
