// An FP8 linear as a kernel computes it, with the places open where kernels go wrong. It does not share the reference's loop.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "reference/quantize.hpp"
#include "reference/weight_matrix.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {

// Rows of activations before quantisation.
struct ActivationRows {
  std::vector<float> x = {};  // [num_rows, in_dim]
  int64_t num_rows = 0;
  int64_t in_dim = 0;

  [[nodiscard]] std::span<const float> row(int64_t m) const {
    return std::span<const float>(x).subspan(static_cast<size_t>(m * in_dim), static_cast<size_t>(in_dim));
  }
};

// What a linear works on: all rows, those of its expert's tokens, or the two inputs side by side.
ActivationRows activation_rows(const OpCall& call, int64_t in_dim);

using QuantizedRows = std::vector<reference::QuantizedRow>;

// Largest magnitude of elements [begin, end).
float largest_magnitude(std::span<const float> x);
// Every 1x128 block with the scale scale_of(row, block, elements), and codes code_of(x / scale).
QuantizedRows quantised(const ActivationRows& rows,
                        const std::function<float(int64_t, size_t, std::span<const float>)>& scale_of,
                        const std::function<float(float)>& code_of);
// max(amax, 1e-4) / 448, as published.
float published_scale(std::span<const float> block);

struct Fp8Kernel {
  std::function<QuantizedRows(const ActivationRows&)> quantise = {};  // empty: as published
  // Changes rows after they are quantised.
  std::function<void(QuantizedRows&)> stage = {};
  std::function<float(const reference::WeightMatrix&, int64_t n, int64_t block)> weight_scale =
      [](const reference::WeightMatrix& weight, int64_t n, int64_t block) { return weight.scale(n, block); };
  // Dot of one block of codes; running sum over scaled blocks; last rounding.
  std::function<float(std::span<const float>, std::span<const float>)> dot = {};  // empty: ascending k
  std::function<float(float sum, float scaled)> add = [](float sum, float scaled) { return sum + scaled; };
  std::function<double(float)> store = {};  // empty: to nearest BF16
};

// Plain linears and the gathering ones of experts. Where the op is not FP8 (BF16 weights, exact mode) it runs as it should.
FaultyOp with_kernel(Fp8Kernel kernel);

}  // namespace tools::faults
