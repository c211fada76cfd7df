// The steps of step_block.hpp for every machine.
#include <algorithm>
#include <bit>
#include <cfenv>

#include "reference/tensor_core/linear_dot.hpp"
#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

#include "reference/tensor_core/step_block_packs.hpp"

// Products are exact, so this has the bits of a fused step.
template <typename Number>
inline Number fused(Number x, Number w, Number sum) {
  return x * w + sum;
}

#include "reference/tensor_core/step_block_bodies.hpp"

template <typename Real>
void run(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows) {
  const int saved = std::fegetround();
  std::fesetround(FE_TOWARDZERO);
  for (int64_t m = 0; m < num_rows; ++m) {
    run_steps<Real>(span, *rows[m].x, tile, rows[m].c);
  }
  std::fesetround(saved);
}

template <typename Real>
StepRange fill(const StepNumbers& from, StepTile<Real>& tile) {
  using Exponent = typename StepReal<Real>::Exponent;
  int largest_field = 0;
  for (int k = 0; k < kBlockProducts; ++k) {
    const int place = from.places[k];
    for (int n = 0; n < StepTile<Real>::kCols; ++n) {
      const float number = from.numbers[n * kBlockProducts + k];
      const int field = static_cast<int>(std::bit_cast<uint32_t>(number) >> 23 & 0xFF);
      largest_field = std::max(largest_field, field);
      tile.halves[0][place][n] = std::max(number, 0.0f);
      tile.halves[1][place][n] = std::min(number, 0.0f);
      tile.exponent[place][n] = number == 0 ? StepReal<Real>::kZeroExponent
                                            : static_cast<Exponent>(std::max(field - 127, from.smallest_exponent));
    }
  }
  return {.largest_exponent = largest_field - 127, .finite = largest_field < 255};
}

void promote_row(const PromoteRow& row, const float* t, float* f) {
  for (int i = 0; i < row.len; ++i) {
    f[i] = promote(row.form, t[i], row.a_scale, row.b_scale, f[i]);
  }
}

}  // namespace

const StepKernels kBaselineSteps{{run<float>, fill<float>}, {run<double>, fill<double>}, nullptr, promote_row};

}  // namespace reference::tensor_core
