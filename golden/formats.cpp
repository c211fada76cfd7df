#include "golden/formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "golden/dump_files.hpp"
#include "golden/formats/converter.hpp"
#include "golden/formats/map_file.hpp"
#include "model/check.hpp"

namespace golden {
namespace {

using model::TensorView;

// Our own names: taken as they are, except that full final_norm and logits are cut to the rows that dumps of the case hold.
TensorView own_tensor(const Case& which, std::string_view op, const TensorView& tensor) {
  const bool full = !tensor.shape.empty() && tensor.num_rows() == which.num_tokens();
  return full ? stored_rows(which, op, tensor) : tensor;
}

// Which case a step of the dump is.
class StepCases {
 public:
  StepCases(const std::vector<DumpTensor>& tensors, const NameMap& map, const std::vector<Case>& cases)
      : map_(map), cases_(cases) {
    for (const DumpTensor& tensor : tensors) {
      if (is_number(tensor.step)) {
        numbers_.insert(std::stoll(tensor.step));
      }
    }
  }

  // Null when it is none.
  [[nodiscard]] const Case* find(const std::string& step) const {
    if (const auto mapped = map_.cases.find(step); mapped != map_.cases.end()) {
      return named(mapped->second);
    }
    if (const Case* which = named(step); which != nullptr || !map_.cases.empty() || !is_number(step)) {
      return which;
    }
    const auto position = std::distance(numbers_.begin(), numbers_.find(std::stoll(step)));
    return position < std::ssize(cases_) ? &cases_[static_cast<size_t>(position)] : nullptr;
  }

 private:
  static bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  }
  [[nodiscard]] const Case* named(const std::string& name) const {
    const auto which = std::ranges::find(cases_, name, &Case::name);
    return which == cases_.end() ? nullptr : &*which;
  }

  const NameMap& map_;
  const std::vector<Case>& cases_;
  std::set<int64_t> numbers_;  // of all steps of the dump
};

Dump read_own(const std::vector<DumpTensor>& tensors, const std::vector<Case>& cases) {
  const NameMap no_map;
  const StepCases steps(tensors, no_map, cases);
  Dump dump;
  for (const DumpTensor& entry : tensors) {
    const Case* which = steps.find(entry.step);
    const bool taken =
        which != nullptr &&
        dump.tensors.emplace(which->name + "/" + entry.name, own_tensor(*which, entry.name, entry.tensor)).second;
    if (!taken) {
      dump.unused.push_back(entry.shown);
    }
  }
  return dump;
}

Dump read_foreign(const std::string& path,
                  const std::vector<DumpTensor>& tensors,
                  const NameMap& map,
                  const model::ModelConfig& config,
                  const std::vector<Case>& cases,
                  bool is_shard) {
  const StepCases steps(tensors, map, cases);
  std::map<std::string, CaseTensors> by_case;
  for (const DumpTensor& entry : tensors) {
    const Case* which = steps.find(entry.step);
    if (which != nullptr && entry.name.find('#') == std::string::npos) {
      SplitName split = split_numbers(entry.name);
      by_case[which->name][split.pattern].emplace(std::move(split.numbers), std::pair(entry.shown, entry.tensor));
    }
  }
  Converter converter(map, config, cases, path, is_shard);
  for (const Case& which : cases) {
    if (const auto found = by_case.find(which.name); found != by_case.end()) {
      converter.convert(which, found->second);
    }
  }
  Dump dump{.tensors = converter.converted(), .unused = {}};
  for (const DumpTensor& entry : tensors) {
    if (!converter.used().contains(entry.shown)) {
      dump.unused.push_back(entry.shown);
    }
  }
  return dump;
}

}  // namespace

std::vector<std::string> known_formats() {
  std::vector<std::string> names{"dsv3", "v32", "official", "hf"};
  for (const BuiltInMap& map : built_in_maps()) {
    names.emplace_back(map.name);
  }
  return names;
}

NameMap name_map(std::string_view format) {
  if (format == "hf") {
    return {.rows = hf_names()};
  }
  if (format == "v32" || format == "official") {
    return {.rows = v32_names()};
  }
  const auto built_in = std::ranges::find(built_in_maps(), format, &BuiltInMap::name);
  if (built_in != built_in_maps().end()) {
    return parse_map(built_in->text, std::string(format));
  }
  if (format.ends_with(".json")) {
    return read_map(format);
  }
  model::throw_input_error("format \"{}\" is not known, expected one of {} or a map file NAME.json",
                           format,
                           fmt::join(known_formats(), ", "));
}

Dump read_dump(const std::filesystem::path& path,
               std::string_view format,
               const model::ModelConfig& config,
               const std::vector<Case>& cases,
               std::optional<int64_t> shard_rank) {
  const NameMap map =
      format == "dsv3" ? NameMap{} : name_map(format);  // an unknown format is said before a missing file
  const std::vector<DumpTensor> tensors = read_dump_files(path, shard_rank);
  return format == "dsv3" ? read_own(tensors, cases)
                          : read_foreign(path.string(), tensors, map, config, cases, shard_rank.has_value());
}

}  // namespace golden
