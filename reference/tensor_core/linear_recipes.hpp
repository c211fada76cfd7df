// The arithmetics that a linear may be computed with as a rule of its own: recipes under the names that modes, variants and verdicts use.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {

// "hopper", "ampere", "ada", "blackwell": each recipe with its first path and DeepGEMM's promotion. Of hopper also
//   -mma             the FP8 path of mma.sync: what small tiles run, which wgmma does not take
//   -triton          the partial sum times the activation's scale first, then added: Triton's kernel as written
//   -triton-fused    the same, fused by the compiler
//   -mma-triton, -mma-triton-fused
const std::vector<std::shared_ptr<const Recipe>>& linear_recipes();
// Null if there is none of that name.
std::shared_ptr<const Recipe> find_linear_recipe(std::string_view name);

bool has_unit(const Recipe& recipe, Format format);

// The path that products of E4M3 codes, or of BF16 numbers, take; a unit for E4M3FNUZ takes E4M3 codes too. Throws InputError if the accelerator has none.
const Path& linear_path(const Recipe& recipe, Format format);
// "FP8: wgmma: ...; BF16: ..." for manifests.
std::string describe_recipe(const Recipe& recipe);

}  // namespace reference::tensor_core
