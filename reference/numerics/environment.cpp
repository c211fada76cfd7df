// Canaries: small sums and products whose result shows which rule was broken. Operands are volatile, so that they are computed
// when the program runs; the expressions themselves are ordinary code, compiled with the flags of the project.
#include "reference/numerics/environment.hpp"

#include <array>
#include <cfloat>
#include <limits>

#include "model/check.hpp"

namespace reference {
namespace {

static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559);
static_assert(FLT_EVAL_METHOD == 0, "float expressions must be computed in float");

// The optimiser does not know the value.
template <typename T>
T opaque(T value) {
  volatile T hidden = value;
  return hidden;
}

// 1 + u / 2 is a tie and stays 1 in either sign, 1 + 3 u / 4 goes up to 1 + u. The directed modes fail at least one of them.
template <typename T>
bool rounds_to_nearest() {
  constexpr T kUlp = std::numeric_limits<T>::epsilon();
  const T one = opaque(T{1});
  const T tie = opaque(kUlp / 2);
  const T above_tie = opaque(kUlp * T{0.75});
  return one + tie == one && -one - tie == -one && one + above_tie == one + kUlp;
}

template <typename T>
bool keeps_subnormals() {
  const T min_normal = opaque(std::numeric_limits<T>::min());
  const T subnormal = opaque(std::numeric_limits<T>::denorm_min());
  const T result = opaque(min_normal * T{0.5});                                    // flushed to 0 under FTZ
  const T from_subnormal = opaque(subnormal / std::numeric_limits<T>::epsilon());  // 0 under DAZ
  return result != T{0} && from_subnormal == min_normal;
}

// (1 + d)^2 = 1 + 2d + d^2: the rounded product loses d^2, a fused one keeps it.
template <typename T>
bool leaves_products_unfused() {
  const T d = opaque(std::numeric_limits<T>::epsilon() * T{16});
  const T factor = T{1} + d;
  const T minus_rounded_square = opaque(-(T{1} + (d + d)));
  return factor * factor + minus_rounded_square == T{0};
}

// In the written order every second term disappears in the large one before it; in any other order some survive.
template <typename T>
bool keeps_order_of_sums() {
  constexpr int kLen = 64;
  const T large = opaque(T{4} / std::numeric_limits<T>::epsilon());
  std::array<T, kLen> terms{};
  for (int i = 0; i < kLen; i += 4) {
    terms[i] = large;
    terms[i + 1] = opaque(T{1});
    terms[i + 2] = -large;
  }
  T sum = 0;
  for (const T term : terms) {
    sum += term;
  }
  const T small = opaque(T{1});
  const T regrouped = (small + large) - large;
  return sum == T{0} && regrouped == T{0};
}

void require(bool holds, const char* what) {
  if (!holds) {
    model::throw_check_error(__FILE__, __LINE__, what);
  }
}

}  // namespace

void check_float_environment() {
  require(rounds_to_nearest<float>() && rounds_to_nearest<double>(),
          "the rounding mode is not to nearest, ties to even");
  require(keeps_subnormals<float>() && keeps_subnormals<double>(),
          "subnormal numbers are flushed to zero (FTZ or DAZ is on; a library linked with -ffast-math does that)");
  require(leaves_products_unfused<float>() && leaves_products_unfused<double>(),
          "the compiler fused a product and a sum (build with -ffp-contract=off)");
  require(keeps_order_of_sums<float>() && keeps_order_of_sums<double>(),
          "the compiler changed the order of a sum (build without -ffast-math)");
}

}  // namespace reference
