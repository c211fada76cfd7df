// One output of a linear layer by a recipe: the whole of K, with what happens outside the tensor core. The definition, element by element.
#pragma once

#include <cstdint>
#include <span>

#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {

// FP8: sum over 128-blocks of K, before the result is rounded to its storage type.
// a, b: codes [K]; a_scale, b_scale: one scale for each 128-block, [ceil(K / 128)]. `path` is one of the recipe's for `format`.
// Order: blocks ascending, in a block `promotion.every` products at a time; each partial sum t starts from zero on the unit and is
// promoted by `promotion.form`.
float fp8_linear_dot(const Recipe& recipe,
                     const Path& path,
                     Format format,
                     std::span<const uint32_t> a,
                     std::span<const uint32_t> b,
                     std::span<const float> a_scale,
                     std::span<const float> b_scale);

// f after the partial sum t has met its two scales.
float promote(Promotion::Form form, float t, float a_scale, float b_scale, float f);

// BF16 or FP16: steps chained as recipe.chunks says. a, b: codes [K].
float linear_dot(
    const Recipe& recipe, const Path& path, Format format, std::span<const uint32_t> a, std::span<const uint32_t> b);

}  // namespace reference::tensor_core
