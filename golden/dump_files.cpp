#include "golden/dump_files.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <regex>
#include <tuple>

#include "golden/npy_file.hpp"
#include "golden/torch_file.hpp"
#include "model/check.hpp"
#include "model/safetensors.hpp"

namespace golden {
namespace {

namespace fs = std::filesystem;
using model::TensorView;
using model::throw_input_error;
using NamedTensors = std::vector<std::pair<std::string, TensorView>>;
using Tags = std::map<std::string, std::string>;

NamedTensors read_file(const fs::path& path) {
  if (path.extension() == ".npy") {
    return {{"", read_npy(path)}};
  }
  if (path.extension() == ".pt") {
    return read_torch_file(path);
  }
  const model::SafetensorsFile file = model::read_safetensors(path);
  return {file.tensors.begin(), file.tensors.end()};
}

// "name=q___step=3___rank=0" as keys and values; empty when the name is not of that form.
Tags tags_of(std::string_view stem) {
  constexpr std::string_view kJoint = "___";
  Tags tags;
  while (true) {
    const size_t end = std::min(stem.find(kJoint), stem.size());
    const std::string_view part = stem.substr(0, end);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return {};
    }
    tags.emplace(part.substr(0, equals), part.substr(equals + 1));
    if (end == stem.size()) {
      return tags.contains("name") ? tags : Tags{};
    }
    stem.remove_prefix(end + kJoint.size());
  }
}

std::string without_zeros(const std::string& digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == std::string::npos ? "0" : digits.substr(first);
}

// "pass_007" and "7" are step 7; anything else is a case's name.
std::string step_of(const std::string& text) {
  static const std::regex step("(?:pass|step)?[_-]?([0-9]{1,9})", std::regex::icase);
  std::smatch match;
  return std::regex_match(text, match, step) ? without_zeros(match[1]) : text;
}

std::string module_name(const Tags& tags) {
  constexpr std::string_view kHooked = "non_intrusive__";
  std::string name = tags.at("name");
  if (name.starts_with(kHooked)) {
    name.erase(0, kHooked.size());
    static const std::regex output("\\.output$");
    static const std::regex part_of_output("\\.output\\.([0-9]+)$");
    static const std::regex input("\\.inputs\\.([0-9]+)$");
    name = std::regex_replace(name, output, "");
    name = std::regex_replace(name, part_of_output, "[$1]");
    return std::regex_replace(name, input, ".in[$1]");
  }
  const auto layer = tags.find("layer_id");
  return layer == tags.end() || name.find("layers.") != std::string::npos ? name
                                                                          : "layers." + layer->second + "." + name;
}

// A file of SGLang's dumper: a value alone, or beside what describes it.
void add_dumper_file(const Tags& tags,
                     const std::string& shown,
                     const NamedTensors& tensors,
                     std::vector<DumpTensor>& found) {
  std::string step;
  for (const char* key : {"step", "forward_pass_id", "curr_step"}) {
    if (const auto tag = tags.find(key); tag != tags.end()) {
      step = step_of(tag->second);
    }
  }
  for (const auto& [inner, tensor] : tensors) {
    constexpr std::string_view kValue = "value";
    if (inner == "meta" || inner.starts_with("meta.") || inner.starts_with("meta[")) {
      continue;
    }
    const std::string rest = inner.starts_with(kValue) ? inner.substr(kValue.size()) : inner;
    found.push_back({.step = step, .name = module_name(tags) + rest, .shown = shown + rest, .tensor = tensor});
  }
}

// A file whose name says the case and maybe the op.
void add_plain_file(const fs::path& relative, const NamedTensors& tensors, std::vector<DumpTensor>& found) {
  static const std::regex forward_hook("Pass[0-9]{1,9}");
  const std::string stem = relative.stem().string();
  const bool hook = relative.extension() == ".pt" && std::regex_match(stem, forward_hook);
  for (const auto& [inner, tensor] : tensors) {
    DumpTensor entry{.name = inner, .shown = relative.string() + ": " + inner, .tensor = tensor};
    std::string place = inner;
    if (inner.empty()) {
      const size_t joint = stem.find("__");
      const std::string folder = relative.parent_path().filename().string();
      place = joint != std::string::npos ? stem.substr(0, joint) + "/" + stem.substr(joint + 2) : folder + "/" + stem;
      entry.shown = relative.string();
    }
    if (const size_t slash = place.find('/'); slash != std::string::npos) {
      entry.step = step_of(place.substr(0, slash));
      entry.name = place.substr(slash + 1);
    } else {
      entry.step = step_of(stem);
    }
    if (relative.extension() == ".safetensors") {
      entry.shown = inner;
    }
    const bool late = hook && inner.find('/') == std::string::npos && !inner.empty() && !inner.starts_with("model.");
    if (late) {
      entry.step = entry.step == "0" ? "" : std::to_string(std::stoll(entry.step) - 1);
    }
    found.push_back(std::move(entry));
  }
}

// Of a file or the folders it lies in; empty when the names do not say.
std::optional<int64_t> rank_of(const fs::path& relative) {
  static const std::regex rank("(?:^|[^a-z])rank[=_-]?([0-9]{1,5})(?![0-9])", std::regex::icase);
  std::smatch match;
  const std::string text = relative.string();
  return std::regex_search(text, match, rank) ? std::optional(std::stoll(match[1].str())) : std::nullopt;
}

// In an order that does not depend on the file system, and in which an earlier dump of a name comes first.
std::vector<fs::path> files_below(const fs::path& directory) {
  std::vector<std::tuple<int64_t, std::string, fs::path>> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    const auto kind = path.extension();
    if (kind != ".pt" && kind != ".npy" && kind != ".safetensors") {
      continue;
    }
    const Tags tags = tags_of(path.stem().string());
    const auto index = tags.find("dump_index");
    files.emplace_back(index == tags.end() ? 0 : std::strtoll(index->second.c_str(), nullptr, 10), path.string(), path);
  }
  if (error || files.empty()) {
    throw_input_error("{}: expected a directory with .pt, .npy or .safetensors files", directory.string());
  }
  std::ranges::sort(files);
  std::vector<fs::path> paths;
  for (auto& [index, text, path] : files) {
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace

std::vector<DumpTensor> read_dump_files(const fs::path& path, std::optional<int64_t> rank) {
  std::error_code error;
  const bool directory = fs::is_directory(path, error);  // reading says what is wrong with it
  std::vector<DumpTensor> found;
  std::optional<int64_t> first_rank;
  for (const fs::path& file : directory ? files_below(path) : std::vector{path}) {
    const fs::path relative = directory ? file.lexically_relative(path) : file.filename();
    const auto own_rank = rank_of(relative);
    if (rank && own_rank != rank) {
      continue;
    }
    if (own_rank && first_rank && own_rank != first_rank) {
      throw_input_error("{}: holds files of rank {} and of rank {}, expected those of one (or --layout)",
                        path.string(),
                        *first_rank,
                        *own_rank);
    }
    first_rank = own_rank ? own_rank : first_rank;
    const Tags tags = file.extension() == ".pt" ? tags_of(file.stem().string()) : Tags{};
    if (tags.empty()) {
      add_plain_file(relative, read_file(file), found);
    } else {
      add_dumper_file(tags, relative.string(), read_file(file), found);
    }
  }
  return found;
}

std::set<int64_t> ranks_of_files(const fs::path& directory) {
  std::set<int64_t> ranks;
  for (const fs::path& file : files_below(directory)) {
    if (const auto rank = rank_of(file.lexically_relative(directory)); rank) {
      ranks.insert(*rank);
    }
  }
  return ranks;
}

}  // namespace golden
