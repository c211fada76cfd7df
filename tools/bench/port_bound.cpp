#include "tools/bench/port_bound.hpp"

#include <algorithm>

#include "reference/simd/kernels.hpp"
#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/recipe_matmul.hpp"
#include "reference/tensor_core/step_block.hpp"

namespace tools {
namespace {

using reference::LinearSum;
using reference::simd::Level;
using reference::tensor_core::StepSums;

double vec_len(Level level) {
  return level == Level::kAvx512 ? 16 : level == Level::kAvx2 ? 8 : 4;
}

// The loops of reference/tensor_core/step_block*, for one product of K with the outputs of a tile: 32 in integers, 16 in FP64.
PortCount count_of_steps(StepSums sums, Level level) {
  if (sums == StepSums::kDouble) {
    // Vectors of four outputs at every level, each with a sum from M and one from -M, products and additions apart in the baseline.
    // Loads: the weights, x as a number, as a sign and its exponent, exponents. The exponents take an addition and a maximum.
    const double num_operations = level == Level::kBaseline ? 2 * 16 : 8;
    const double num_loads = level == Level::kBaseline ? 16 + 5 : 8 + 4;
    return {.num_products = 16, .num_operations = num_operations, .num_loads = num_loads};
  }
  // For each vector: times x, times 2^(F - E), to integers, to their sum. Exponents lie in vectors of 32 bytes at most: less the depth of
  // x, the maximum. Loads: the weights, x, its depth, which takes an operation to fill a vector, and the exponents.
  const double num_vectors = 32 / vec_len(level);
  const double num_exponent_vectors = level == Level::kBaseline ? 2 : 1;
  return {.num_products = 32,
          .num_operations = 2 * num_vectors,
          .num_loads = num_vectors + (level == Level::kBaseline ? 2 : 1) + 1 + num_exponent_vectors,
          .num_vector_operations = 4 * num_vectors + 1 + 2 * num_exponent_vectors};
}

// The loop of reference/tensor_core/step_block_floor_bodies.hpp over as many rows of x as share the loads of weights. Of each row: a
// multiply-add for each vector; the place of x into a vector, two subtractions and a comparison; exponents as above. Loads: the weights, and
// of each row x, its place, the places of weights, its depth, the exponents.
PortCount count_of_floor_steps(Level level) {
  const double num_rows = level == Level::kAvx512 ? 4 : 2;
  const double num_vectors = 32 / vec_len(level);
  return {.num_products = 32 * num_rows,
          .num_operations = num_vectors * num_rows,
          .num_loads = num_vectors + 5 * num_rows,
          .num_vector_operations = (num_vectors + 4 + 3) * num_rows};
}

bool takes_floor_steps(const reference::tensor_core::Path& path, bool is_fp8, int64_t num_tokens, Level level) {
  namespace tensor_core = reference::tensor_core;
  return is_fp8 && level != Level::kBaseline && path.chain == tensor_core::Chain::kSteps &&
         num_tokens > tensor_core::kRowsWithoutPlaces &&
         tensor_core::fits_floor(path.step.num_products, path.step.align_bits);
}

// The loops of reference/simd/product_bodies.hpp for eight outputs of a block of 128: multiply-adds, then the tree that joins the lanes
// and the scales. Shuffles of the tree take one of two ports with AVX-512, and a port of their own otherwise.
PortCount count_of_written_order(Level level) {
  constexpr double kProducts = 8 * 128;
  constexpr double kAdditions = 7;
  constexpr double kShuffles = 14;
  constexpr double kScaling = 3;
  switch (level) {
    case Level::kAvx512:
      return {.num_products = kProducts,
              .num_operations = 64 + 2 * 8 + kAdditions + kShuffles + kScaling,
              .num_loads = 64.0 * 10 / 24};
    case Level::kAvx2:
      return {
          .num_products = kProducts, .num_operations = 128 + 8 + kAdditions + kScaling, .num_loads = 128.0 * 7 / 12};
    default: return {.num_products = kProducts, .num_operations = 2 * 256, .num_loads = 256};
  }
}

// The same for few rows of x: eight rows of a block of 128 are decoded on the way, and a search for numbers that need another way runs
// over their codes. E4M3: for two vectors of codes a widening load, a shift and a mask, then a load with conversion for each; the search
// takes two operations for a vector of bytes. BF16: a widening load and a shift for each; the search takes four for a vector of words.
std::optional<PortCount> count_of_few(bool is_fp8, int64_t num_tokens, Level level) {
  if (level == Level::kBaseline) {
    return std::nullopt;
  }
  constexpr double kWeights = 8 * 128;
  const auto tokens = static_cast<double>(num_tokens);
  const double num_vectors = kWeights / vec_len(level);
  const double decoding = is_fp8 ? num_vectors * 2.5 + kWeights / 32 * 2 : num_vectors * 2 + kWeights / 16 * 4;
  const double joining = level == Level::kAvx2 ? 8 + 7 + 14 + 3 : 7 + 14 + 3;
  const double loads_of_weights = is_fp8 ? num_vectors * 1.5 + kWeights / 32 : num_vectors + kWeights / 16;
  // x once for as many rows as the sums of a tile leave (rows_at_a_time).
  const double rows = level == Level::kAvx512 ? (num_tokens <= 3 ? 8 : 4)
                      : num_tokens == 1       ? 8
                      : num_tokens <= 3       ? 4
                                              : 8.0 / 3;
  return PortCount{.num_products = kWeights * tokens,
                   .num_operations = num_vectors * tokens,
                   .num_loads = loads_of_weights + num_vectors * tokens / rows,
                   .num_vector_operations = num_vectors * tokens + decoding + joining * tokens,
                   .num_weight_bytes = is_fp8 ? kWeights : 2 * kWeights};
}

// The loops of reference/any_order_tile_bodies.hpp over a block of 128: two vectors of tokens and 6 weights (AVX-512: 12) at a time; then
// the scale of each sum, a product, and the sum that it is added to.
PortCount count_of_any_order(Level level) {
  const double num_weights = level == Level::kAvx512 ? 12 : 6;
  const double num_sums = 2 * num_weights;
  const double operations_of_product = level == Level::kBaseline ? 2 : 1;
  return {.num_products = 128 * num_sums * vec_len(level),
          .num_operations = 128 * num_sums * operations_of_product + 3 * num_sums,
          .num_loads = 128 * (2 + num_weights) + 2 * num_sums};
}

}  // namespace

std::optional<PortCount> port_count(const reference::Rules& rules, bool is_fp8, int64_t num_tokens, Level level) {
  if (rules.exact()) {
    return std::nullopt;
  }
  switch (rules.linear_sum) {
    case LinearSum::kWrittenOrder:
      return num_tokens <= reference::simd::kFewTokens ? count_of_few(is_fp8, num_tokens, level)
                                                       : count_of_written_order(level);
    case LinearSum::kAnyOrder: return count_of_any_order(level);
    case LinearSum::kTensorCore: break;
  }
  using reference::tensor_core::Format;
  const Format format = is_fp8 ? Format::kE4m3 : Format::kBf16;
  const auto sums = reference::tensor_core::step_sums(*rules.recipe, format);
  if (sums == StepSums::kIntegers &&
      takes_floor_steps(reference::tensor_core::linear_path(*rules.recipe, format), is_fp8, num_tokens, level)) {
    return count_of_floor_steps(level);
  }
  return sums == StepSums::kDefinition ? std::nullopt : std::optional(count_of_steps(sums, level));
}

double port_bound_frac(const PortCount& count, const CoreRates& core, Level level) {
  const double operations_of_mac =
      level == Level::kBaseline ? 2 : 1;  // its multiply-add loop has products and additions apart
  const double operations_ns = count.num_operations / operations_of_mac * vec_len(level) / core.gmac_per_s;
  const double ns = std::max({operations_ns,
                              count.num_loads / core.gload_per_s,
                              count.num_vector_operations / core.goperation_per_s,
                              count.num_weight_bytes / core.read_gb_per_s});
  return count.num_products / ns / core.gmac_per_s;
}

}  // namespace tools
