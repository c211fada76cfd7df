// Rounding a real number (held in double) to a storage format in one step, for bounds and comparisons.
#pragma once

#include "model/dtype.hpp"

namespace reference {

// Nearest number of the format, ties to even: F64 (identity), F32, BF16, F16, F8_E4M3 (saturating). One rounding, never through an
// intermediate format. Throws CheckError for other formats.
double round_to_format(model::DType format, double value);
// Distance from |value| to the next larger number of the format (its ulp in the binade of value; subnormal step near zero; the
// largest step beyond the range). NaN for NaN.
double ulp_in_format(model::DType format, double value);

}  // namespace reference
