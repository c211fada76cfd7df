// The stored elements of generated tensors, any part of one alone: a pure function of (seed, tensor name, index).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tensor_catalog.hpp"
#include "tools/synthetic/fixtures.hpp"

namespace tools::synthetic {

// Part of every checkpoint hash: raise it whenever a bit changes.
inline constexpr int kGeneratorVersion = 1;

// All: elements [first, first + count) in row-major order of the tensor that `tensor` describes. Its role and dtype say which of
// them applies.

// Codes with a normal distribution whose largest is 448 in every 128-block, as a quantiser leaves it.
[[nodiscard]] std::vector<uint8_t> fp8_codes(
    const Fixture& fixture, uint64_t seed, const model::CatalogTensor& tensor, int64_t first, int64_t count);

// The scale companion of the FP8 weight `weight`, which carries the size: neighbouring blocks differ at least fourfold, and no
// scale is a power of two.
[[nodiscard]] std::vector<float> fp8_scales(
    const Fixture& fixture, uint64_t seed, const model::CatalogTensor& weight, int64_t first, int64_t count);

// The MTP layers hold copies of the main embedding and head: the name of what a tensor is a copy of, or its own.
[[nodiscard]] std::string original_name(const model::CatalogTensor& tensor);

[[nodiscard]] std::vector<uint16_t> bf16_codes(
    const Fixture& fixture, uint64_t seed, const model::CatalogTensor& tensor, int64_t first, int64_t count);

// Both signs, and in the first MoE layer one expert that every token selects and one that none does.
[[nodiscard]] std::vector<float> router_biases(
    const Fixture& fixture, uint64_t seed, const model::CatalogTensor& tensor, int64_t first, int64_t count);

}  // namespace tools::synthetic
