// The steps of step_block.hpp for every machine.
#include <algorithm>
#include <bit>
#include <cfenv>

#include "reference/tensor_core/linear_dot.hpp"
#include "reference/tensor_core/step_block.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kVecBytes = 16;
#include "reference/tensor_core/step_block_packs.hpp"

inline Bytes difference(Bytes a, Bytes b) {
  return (a > b ? a : b) - b;
}
inline bool all_equal(Bytes a, Bytes b) {
  const auto different = (FoursOfBytes)(a ^ b);
  uint32_t any = 0;
  for (int i = 0; i < kColsOfTile / 4; ++i) {
    any |= different[i];
  }
  return any == 0;
}
inline Bytes fields_of(const float* numbers) {
  alignas(Bytes) uint8_t fields[kColsOfTile];
  for (int n = 0; n < kColsOfTile; ++n) {
    fields[n] = static_cast<uint8_t>(std::bit_cast<uint32_t>(numbers[n]) >> 23);  // the sign does not fit
  }
  return *reinterpret_cast<const Bytes*>(fields);
}
inline Ints widened(const uint8_t* bytes) {
  return Ints{bytes[0], bytes[1], bytes[2], bytes[3]};
}
inline bool any_negative(Ints numbers) {
  return ((numbers[0] | numbers[1]) | (numbers[2] | numbers[3])) < 0;
}

#include "reference/tensor_core/step_block_bodies.hpp"
#include "reference/tensor_core/step_block_wide_bodies.hpp"

template <typename Real>
void run(const StepSpan& span, const StepTile<Real>& tile, const StepOutputs<Real>* rows, int64_t num_rows) {
  const int saved = std::fegetround();
  std::fesetround(FE_TOWARDZERO);
  if constexpr (sizeof(Real) == 4) {
    run_integer_steps(span, tile, rows, num_rows);
  } else {
    run_wide_steps(span, tile, rows, num_rows);
  }
  std::fesetround(saved);
}

StepRange fill_narrow(const StepNumbers& from, StepTile<float>& tile) {
  int largest = 0;
  int smallest = 255;
  for (int k = 0; k < kBlockProducts; ++k) {
    const int place = from.places[k];
    for (int n = 0; n < kColsOfTile; ++n) {
      const float number = from.numbers[n * kBlockProducts + k];
      uint32_t bits = 0;
      __builtin_memcpy(&bits, &number, sizeof(bits));
      const int field = static_cast<int>(bits >> 23 & 0xFF);
      const int exponent = number == 0 ? 0 : std::max(field, from.smallest_exponent + 127);
      tile.weight[place][n] = number;
      tile.exponent[place][n] = static_cast<uint8_t>(exponent);
      largest = std::max(largest, exponent);
      smallest = exponent == 0 ? smallest : std::min(smallest, exponent);
    }
  }
  tile.smallest_exponent = smallest;
  return {.largest_exponent = largest - 127, .finite = largest < 255};
}

void promote_row(const PromoteRow& row, const float* t, float* f) {
  for (int i = 0; i < row.len; ++i) {
    f[i] = promote(row.form, t[i], row.a_scale, row.b_scale, f[i]);
  }
}

}  // namespace

const StepKernels kBaselineSteps{{run<float>, fill_narrow}, {run<double>, fill_wide}, nullptr, nullptr, promote_row};

}  // namespace reference::tensor_core
