#include "golden/formats/map_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "golden/json_text.hpp"
#include "model/check.hpp"
#include "model/mapped_file.hpp"

namespace golden {
namespace {

using model::throw_input_error;

constexpr std::string_view kConfigSizes[] = {"q_lora_rank",
                                             "kv_lora_rank",
                                             "qk_rope_head_dim",
                                             "qk_nope_head_dim",
                                             "v_head_dim",
                                             "hidden_size",
                                             "intermediate_size",
                                             "moe_intermediate_size"};

// Each entry of "repeats" may double the rows.
constexpr size_t kMaxRows = 10'000;

constexpr std::string_view kMinusLayers = "-num_hidden_layers";

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void require_keys(const Json& object, const std::vector<std::string_view>& known, const std::string& origin) {
  if (!object.is_object()) {
    throw_input_error("{}: expected an object, got {}", origin, object.type_name());
  }
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      throw_input_error("{}: key \"{}\" is not known, expected {}", origin, key, fmt::join(known, ", "));
    }
  }
}

std::string text_of(const Json& object, const std::string& key, const std::string& origin) {
  if (!object.contains(key)) {
    return "";
  }
  if (!object[key].is_string()) {
    throw_input_error("{}: \"{}\" is {}, expected text", origin, key, object[key].type_name());
  }
  return object[key].get<std::string>();
}

const Json& list_of(const Json& object, const std::string& key, const std::string& origin) {
  if (!object.contains(key) || !object[key].is_array()) {
    throw_input_error("{}: expected a list \"{}\"", origin, key);
  }
  return object[key];
}

// A text, or a list of texts.
std::vector<std::string> names_of(const Json& object, const std::string& key, const std::string& origin) {
  if (!object.contains(key) || object[key].is_string()) {
    const std::string name = text_of(object, key, origin);
    return name.empty() ? std::vector<std::string>{} : std::vector{name};
  }
  std::vector<std::string> names;
  for (const Json& name : list_of(object, key, origin)) {
    if (!name.is_string()) {
      throw_input_error("{}: \"{}\": expected names, got {}", origin, key, name.type_name());
    }
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::string bound_text(const Json& bound, const std::string& origin) {
  const std::string text = bound.is_number_unsigned() ? bound.dump()
                           : bound.is_string()        ? bound.get<std::string>()
                                                      : "";
  if (!is_number(text) && text != "half" && text != "end" &&
      std::ranges::find(kConfigSizes, text) == std::end(kConfigSizes)) {
    throw_input_error("{}: slice bound {}, expected a number, \"half\", \"end\" or one of {}",
                      origin,
                      bound.dump(),
                      fmt::join(kConfigSizes, ", "));
  }
  return text;
}

void require_numbers(const NameRow& row, const std::string& origin) {
  if (std::ranges::count(row.foreign, '#') < std::ranges::count(row.ours, '#')) {
    throw_input_error("{}: \"{}\" has more # than \"{}\"", origin, row.ours, row.foreign);
  }
}

std::string shift_of(const Json& object, const std::string& origin) {
  if (!object.contains("shift")) {
    return "";
  }
  const Json& shift = object["shift"];
  const std::string text = shift.is_string() ? shift.get<std::string>() : shift.dump();
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (text != kMinusLayers && !(shift.is_number_integer() && is_number(digits))) {
    throw_input_error("{}: shift {}, expected an integer or \"{}\"", origin, shift.dump(), kMinusLayers);
  }
  return text;
}

// Rows for modules that stand elsewhere under the same names: both prefixes replaced.
std::vector<NameRow> repeated_rows(const Json& repeat, const std::vector<NameRow>& rows, const std::string& origin) {
  require_keys(repeat, {"foreign", "with", "ours", "by", "shift"}, origin);
  const std::string foreign = text_of(repeat, "foreign", origin);
  const std::string with = text_of(repeat, "with", origin);
  const std::string ours = text_of(repeat, "ours", origin);
  const std::string by = text_of(repeat, "by", origin);
  if (foreign.empty() || with.empty() || ours.empty() || by.empty()) {
    throw_input_error("{}: expected \"foreign\", \"with\", \"ours\" and \"by\"", origin);
  }
  std::vector<NameRow> result;
  for (NameRow row : rows) {
    if (!row.foreign.starts_with(foreign) || !row.ours.starts_with(ours) || !row.shift.empty()) {
      continue;
    }
    row.foreign = with + row.foreign.substr(foreign.size());
    row.ours = by + row.ours.substr(ours.size());
    row.second = row.second.starts_with(foreign) ? with + row.second.substr(foreign.size()) : row.second;
    row.shift = shift_of(repeat, origin);
    require_numbers(row, origin);
    result.push_back(std::move(row));
  }
  return result;
}

bool reads_two(Layout layout) {
  return layout == Layout::kPairSum || layout == Layout::kJoin || layout == Layout::kJoinHalfSplit;
}

NameRow parse_row(const Json& row, const std::string& origin) {
  require_keys(row, {"foreign", "ours", "layout", "second", "slice", "shift"}, origin);
  NameRow result{.foreign = text_of(row, "foreign", origin),
                 .ours = text_of(row, "ours", origin),
                 .second = text_of(row, "second", origin),
                 .shift = shift_of(row, origin)};
  if (result.foreign.empty() || result.ours.empty()) {
    throw_input_error("{}: expected \"foreign\" and \"ours\"", origin);
  }
  if (const std::string name = text_of(row, "layout", origin); !name.empty()) {
    const auto layout = parse_layout(name);
    if (!layout) {
      throw_input_error(
          "{}: layout \"{}\" is not known, expected one of {}", origin, name, fmt::join(layout_names(), ", "));
    }
    result.layout = *layout;
  }
  require_numbers(result, origin);
  if (reads_two(result.layout) != !result.second.empty()) {
    throw_input_error("{}: \"second\" is needed by pair_sum, join and join_half_split and by no other layout", origin);
  }
  const bool all_experts = result.layout == Layout::kStackedExperts || result.layout == Layout::kExpertSlots;
  if (all_experts != (result.ours.find(".expert.*") != std::string::npos)) {
    throw_input_error("{}: \"ours\" holds \".expert.*\" with stacked_experts and expert_slots and with no other layout",
                      origin);
  }
  if (row.contains("slice")) {
    const Json& slice = row["slice"];
    if (!slice.is_array() || slice.size() != 2) {
      throw_input_error("{}: \"slice\": expected [begin, end]", origin);
    }
    result.slice_begin = bound_text(slice[0], origin);
    result.slice_end = bound_text(slice[1], origin);
  }
  return result;
}

Padding parse_padding(const std::string& name, const std::string& origin) {
  static const std::map<std::string, Padding> names{
      {"", Padding::kNone}, {"left", Padding::kLeft}, {"right", Padding::kRight}, {"tail", Padding::kTail}};
  const auto found = names.find(name);
  if (found == names.end()) {
    throw_input_error("{}: padding \"{}\", expected left, right or tail", origin, name);
  }
  return found->second;
}

}  // namespace

NameMap parse_map(std::string_view text, const std::string& origin) {
  const Json json = parse_json(text, origin);
  require_keys(json, {"comment", "rows", "repeats", "cases", "positions", "padding"}, origin);
  NameMap map{.positions = names_of(json, "positions", origin),
              .padding = parse_padding(text_of(json, "padding", origin), origin)};
  for (const Json& row : list_of(json, "rows", origin)) {
    map.rows.push_back(parse_row(row, fmt::format("{}: row {}", origin, map.rows.size())));
  }
  for (const Json& repeat : json.contains("repeats") ? list_of(json, "repeats", origin) : Json::array()) {
    const auto more = repeated_rows(repeat, map.rows, origin + ": repeats");
    map.rows.insert(map.rows.end(), more.begin(), more.end());
    if (map.rows.size() > kMaxRows) {
      throw_input_error("{}: repeats: they make more than {} rows", origin, kMaxRows);
    }
  }
  if (json.contains("cases")) {
    if (!json["cases"].is_object()) {
      throw_input_error("{}: \"cases\": expected an object, step number -> case", origin);
    }
    for (const auto& [step, name] : json["cases"].items()) {
      if (!is_number(step)) {
        throw_input_error("{}: cases: \"{}\", expected a step number", origin, step);
      }
      map.cases.emplace(step, text_of(json["cases"], step, origin + ": cases"));
    }
  }
  return map;
}

NameMap read_map(const std::filesystem::path& path) {
  return parse_map(model::MappedFile::open(path)->text(), path.string());
}

int64_t shifted(int64_t number, const NameRow& row, const model::ModelConfig& config) {
  if (row.shift == kMinusLayers) {
    return number - config.num_hidden_layers;
  }
  return row.shift.empty() ? number : number + std::stoll(row.shift);
}

int64_t slice_bound(const std::string& text,
                    int64_t extent,
                    const model::ModelConfig& config,
                    const std::string& origin) {
  const std::map<std::string_view, int64_t> sizes{{"half", extent / 2},
                                                  {"end", extent},
                                                  {"q_lora_rank", config.q_lora_rank.value_or(-1)},
                                                  {"kv_lora_rank", config.kv_lora_rank},
                                                  {"qk_rope_head_dim", config.qk_rope_head_dim},
                                                  {"qk_nope_head_dim", config.qk_nope_head_dim},
                                                  {"v_head_dim", config.v_head_dim},
                                                  {"hidden_size", config.hidden_size},
                                                  {"intermediate_size", config.intermediate_size},
                                                  {"moe_intermediate_size", config.moe_intermediate_size}};
  if (const auto found = sizes.find(text); found != sizes.end()) {
    return found->second;
  }
  int64_t bound = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw_input_error("{}: slice bound \"{}\" is not a number", origin, text);
  }
  return bound;
}

}  // namespace golden
