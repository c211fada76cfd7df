#include "reference/tensor_core/recipe_file.hpp"

#include <fmt/ranges.h>

#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "model/check.hpp"
#include "model/strict_json.hpp"

namespace reference::tensor_core {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileLen = 1 << 16;

template <typename T>
using Names = std::vector<std::pair<std::string_view, T>>;

const Names<Rounding> kRoundings{
    {"toward_zero", Rounding::kTowardZero}, {"down", Rounding::kDown}, {"nearest_even", Rounding::kNearestEven}};
const Names<Format> kFormats{{"e4m3fn", Format::kE4m3},
                             {"e4m3fnuz", Format::kE4m3Fnuz},
                             {"e5m2", Format::kE5m2},
                             {"e5m2fnuz", Format::kE5m2Fnuz},
                             {"bf16", Format::kBf16},
                             {"fp16", Format::kFp16},
                             {"tf32", Format::kTf32}};
const Names<Promotion::Form> kForms{{"fma_scales_first", Promotion::Form::kFusedScalesFirst},
                                    {"add_scales_first", Promotion::Form::kSeparateScalesFirst},
                                    {"fma_activation_first", Promotion::Form::kFusedActivationFirst},
                                    {"add_activation_first", Promotion::Form::kSeparateActivationFirst}};

const Names<bool> kScaleFormats{{"fp32", false}, {"ue8m0", true}};
const Names<Quantiser::Scale> kScales{{"amax_times_reciprocal", Quantiser::Scale::kTimesReciprocal},
                                      {"amax_divided", Quantiser::Scale::kDivide}};
const Names<Quantiser::Code> kCodes{{"divided_by_scale", Quantiser::Code::kDivide},
                                    {"times_reciprocal", Quantiser::Code::kTimesReciprocal},
                                    {"times_max_over_amax", Quantiser::Code::kMaxOverAmax}};

// One object of the file: every key has to be asked for.
class Object {
 public:
  Object(const json& value, std::string place, const std::set<std::string>& known)
      : value_(value), place_(std::move(place)) {
    if (!value.is_object()) {
      model::throw_input_error("{}: expected an object", place_);
    }
    for (const auto& item : value.items()) {
      if (!known.contains(item.key())) {
        model::throw_input_error("{}: unknown key '{:.40}'; known: {}", place_, item.key(), fmt::join(known, ", "));
      }
    }
  }

  [[nodiscard]] bool has(const std::string& key) const { return value_.contains(key); }

  [[nodiscard]] const json& at(const std::string& key) const {
    if (!has(key)) {
      model::throw_input_error("{}: {} is missing", place_, key);
    }
    return value_.at(key);
  }

  [[nodiscard]] int integer(const std::string& key, int low, int high) const {
    const json& value = at(key);
    if (!value.is_number_integer() || value < low || value > high) {
      model::throw_input_error("{}: {} has to be an integer from {} to {}", place_, key, low, high);
    }
    return value.get<int>();
  }

  [[nodiscard]] int integer_or(const std::string& key, int low, int high, int otherwise) const {
    return has(key) ? integer(key, low, high) : otherwise;
  }

  [[nodiscard]] std::string text(const std::string& key) const {
    const json& value = at(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
      model::throw_input_error("{}: {} has to be a word", place_, key);
    }
    return value.get<std::string>();
  }

  template <typename T>
  [[nodiscard]] T choice(const std::string& key, const Names<T>& names) const {
    const std::string word = text(key);
    std::vector<std::string_view> words;
    for (const auto& [name, value] : names) {
      if (name == word) {
        return value;
      }
      words.push_back(name);
    }
    model::throw_input_error("{}: {} '{:.40}': expected {}", place_, key, word, fmt::join(words, ", "));
  }

  template <typename T>
  [[nodiscard]] T choice_or(const std::string& key, const Names<T>& names, T otherwise) const {
    return has(key) ? choice(key, names) : otherwise;
  }

 private:
  const json& value_;
  std::string place_;
};

Path path_of(const json& value, const std::string& place) {
  const Object object(
      value,
      place,
      {"inputs", "products", "align_bits", "align_rounding", "result_bits", "result_rounding", "floor_below"});
  Path path{.name = "stated", .formats = {}, .step = {}, .evidence = Evidence::kUser};
  const json& inputs = object.at("inputs");
  if (!inputs.is_array() || inputs.empty()) {
    model::throw_input_error("{}: inputs has to be a list of formats", place);
  }
  for (const json& input : inputs) {
    path.formats.push_back(Object(json{{"input", input}}, place + ".inputs", {"input"}).choice("input", kFormats));
  }
  path.step = {.num_products = object.integer("products", 1, 64),
               .align_bits = object.integer("align_bits", 1, 48),
               .result_bits = object.integer("result_bits", 1, 23),
               .align = object.choice_or("align_rounding", kRoundings, Rounding::kTowardZero),
               .result = object.choice_or("result_rounding", kRoundings, Rounding::kTowardZero),
               .floor_below = object.integer_or("floor_below", 0, 30, 7)};
  return path;
}

Promotion promotion_of(const json& value, const std::string& place) {
  const Object object(value, place, {"every", "form"});
  const Promotion promotion{.every = object.integer("every", 1, 128), .form = object.choice("form", kForms)};
  if (128 % promotion.every != 0) {
    model::throw_input_error("{}: every has to divide 128, which one scale covers", place);
  }
  return promotion;
}

}  // namespace

Recipe parse_arithmetic(std::string_view text, const std::string& origin) {
  const json file = model::parse_strict_json(text, origin, 6);
  const Object object(file, origin, {"name", "units", "promotion", "bf16_chain", "quantiser"});
  Recipe recipe{.name = object.text("name"), .paths = {}};
  const json& units = object.at("units");
  if (!units.is_array() || units.empty()) {
    model::throw_input_error("{}: units has to be a list of at least one unit", origin);
  }
  std::set<Format> taken;
  for (size_t i = 0; i < units.size(); ++i) {
    const std::string place = fmt::format("{}: units[{}]", origin, i);
    recipe.paths.push_back(path_of(units[i], place));
    for (const Format format : recipe.paths.back().formats) {
      if (!taken.insert(format).second) {
        model::throw_input_error("{}: {} has a unit already", place, format_name(format));
      }
    }
  }
  if (object.has("promotion")) {
    recipe.promotion = promotion_of(object.at("promotion"), origin + ": promotion");
  }
  if (object.has("bf16_chain")) {
    const Object chain(object.at("bf16_chain"), origin + ": bf16_chain", {"splits", "order"});
    recipe.chunks = {.num_splits = chain.integer_or("splits", 1, 64, 1),
                     .descending = chain.choice_or("order", {{"ascending", false}, {"descending", true}}, false)};
  }
  if (object.has("quantiser")) {
    const Object quantiser(object.at("quantiser"), origin + ": quantiser", {"format", "scale", "code"});
    recipe.quantiser = {.power_of_two = quantiser.choice_or("format", kScaleFormats, false),
                        .scale = quantiser.choice_or("scale", kScales, Quantiser::Scale::kTimesReciprocal),
                        .code = quantiser.choice_or("code", kCodes, Quantiser::Code::kDivide)};
  }
  return recipe;
}

std::string read_arithmetic_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileLen + 1, '\0');
  if (!file) {
    model::throw_input_error("{}: cannot be opened", path);
  }
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileLen) {
    model::throw_input_error("{}: larger than {} bytes, so not an arithmetic file", path, kMaxFileLen);
  }
  return text;
}

Recipe read_arithmetic(const std::string& path) {
  return parse_arithmetic(read_arithmetic_text(path), path);
}

Recipe recipe_of(const std::string& name_or_file) {
  return name_or_file.ends_with(".json") ? read_arithmetic(name_or_file) : find_recipe(name_or_file);
}

}  // namespace reference::tensor_core
