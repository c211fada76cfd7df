// x W^T as a recipe's tensor cores add it up. What each output is, linear_dot.hpp says; this decides only how it is computed fast.
#pragma once

#include <vector>

#include "reference/panel_matmul.hpp"
#include "reference/simd/kernels.hpp"
#include "reference/tensor_core/recipe.hpp"
#include "reference/tensor_core/step_block.hpp"
#include "reference/weight_matrix.hpp"

namespace reference::tensor_core {

// y[m, n], before it is rounded to its storage type. Quantised rows meet the codes of an FP8 weight (fp8_linear_dot); other rows,
// rounded to BF16, the weight in BF16 (linear_dot). Checks x.len() == weight.in_dim(). Output [rows, out].
// Throws InputError if the recipe has no path for the operands. Tests choose `level`.
std::vector<float> recipe_matmul(const Recipe& recipe,
                                 const BlockedRows& x,
                                 const WeightMatrix& weight,
                                 int num_threads,
                                 simd::Level level = simd::kernels().level);

// What recipe_matmul keeps the sums of a step in, for those who count its instructions. kDefinition: it takes the definition.
enum class StepSums { kIntegers, kDouble, kDefinition };
StepSums step_sums(const Recipe& recipe, Format format);

// The same, each output by the definition.
std::vector<float> recipe_matmul_plain(const Recipe& recipe,
                                       const BlockedRows& x,
                                       const WeightMatrix& weight,
                                       int num_threads);

}  // namespace reference::tensor_core
