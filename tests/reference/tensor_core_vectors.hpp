// The sets of vectors that tests hold recipes against, and the changed steps that each of them must refuse.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reference/tensor_core/vectors.hpp"

namespace reference::tensor_core {

struct NamedSet {
  std::string file;
  std::string recipe;
  Format format;
  std::string path;  // the instruction that the file was made with
};

inline const std::vector<NamedSet> kMeasuredSets{
    {"a100_bf16_fp32.csv", "ampere", Format::kBf16, "mma.sync"},
    {"ada_bf16_fp32.csv", "ada", Format::kBf16, "mma.sync"},
    {"ada_e4m3_fp32.csv", "ada", Format::kE4m3, "mma.sync"},
    {"h100_bf16_fp32.csv", "hopper", Format::kBf16, "wgmma"},
    {"h100_e4m3_fp32.csv", "hopper", Format::kE4m3, "wgmma, scale-d 0"},
};

inline std::string set_name(const testing::TestParamInfo<NamedSet>& set) {
  return set.param.file.substr(0, set.param.file.find("_fp32"));
}

inline const Path& path_of(const NamedSet& set) {
  for (const Path* path : paths_for(find_recipe(set.recipe), set.format)) {
    if (path->name == set.path) {
      return *path;
    }
  }
  throw std::invalid_argument(set.path);
}

inline std::vector<std::pair<std::string, Path>> changed_steps(const Path& path) {
  std::vector<std::pair<std::string, Path>> changed;
  const auto add = [&](const std::string& name, auto change) {
    Path other = path;
    change(other.step);
    changed.emplace_back(name, other);
  };
  add("F - 1", [](StepRule& rule) { --rule.align_bits; });
  add("F + 1", [](StepRule& rule) { ++rule.align_bits; });
  add("P - 1", [](StepRule& rule) { --rule.result_bits; });
  add("result to nearest even", [](StepRule& rule) { rule.result = Rounding::kNearestEven; });
  add("alignment rounds down", [](StepRule& rule) { rule.align = Rounding::kDown; });
  add("L / 2", [](StepRule& rule) { rule.num_products /= 2; });
  return changed;
}

}  // namespace reference::tensor_core
