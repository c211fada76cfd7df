// `dsv3-verify tensor-core`: vectors of a tensor core against a recipe, or the step that explains them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace tools {

struct TensorCoreFlags {
  std::string csv;
  std::string recipe;
  std::string input;
  std::string path;
  bool fit = false;
  bool json = false;
};

void add_tensor_core(CLI::App& app, TensorCoreFlags& flags);
// 0: one path of the recipe (or one fitted rule) explains every row; 1: none does.
int run_tensor_core(const TensorCoreFlags& flags);

}  // namespace tools
