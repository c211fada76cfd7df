// The stored elements of a generated tensor, any part of it alone: a pure function of (seed, tensor name, index).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/tensor_catalog.hpp"
#include "tools/synthetic/fixtures.hpp"

namespace tools::synthetic {

// Part of every checkpoint hash: raise it whenever a bit changes.
inline constexpr int kGeneratorVersion = 1;

// Elements [first, first + count) in row-major order, in the format that the catalogue states.
//
// FP8 weights are codes with a normal distribution whose largest is 448 in every 128-block, as a quantiser leaves it. The scale
// companion carries the size: neighbouring blocks differ at least fourfold, and no scale is a power of two.
[[nodiscard]] std::vector<std::byte> elements(
    const Fixture& fixture, uint64_t seed, const model::CatalogTensor& tensor, int64_t first, int64_t count);

}  // namespace tools::synthetic
