#include "reference/bounds/dot.hpp"

#include <algorithm>
#include <cmath>

namespace reference {

SumModel sum_model(const Rules& rules, double num_sigmas) {
  return rules.exact() ? SumModel{.unit = std::ldexp(1.5, -53), .num_sigmas = num_sigmas}
                       : SumModel{.unit = std::ldexp(1.0, -24), .num_sigmas = num_sigmas};
}

double flush_error(const Rules& rules) {
  return rules.exact() ? 0 : std::ldexp(1.0, -126);
}

void TermSums::add(double term, double term_error) {
  ++count;
  sum += term;
  squares += term * term;
  magnitudes += std::abs(term);
  largest_prefix = std::max(largest_prefix, std::abs(sum));
  input_error += term_error;
}

double order_error(const SumModel& model, const TermSums& terms) {
  const auto n = static_cast<double>(terms.count);
  const double partial_square =
      terms.sum * terms.sum + std::max(terms.squares, terms.largest_prefix * terms.largest_prefix);
  const double variance = (n * partial_square + terms.squares) / 3;
  const double statistical = model.num_sigmas * model.unit * std::sqrt(variance);
  const double deterministic = (n + 1) * model.unit / (1 - (n + 1) * model.unit) * terms.magnitudes;
  return std::min(statistical, deterministic);
}

ValueWithError dot_with_error(const SumModel& model,
                              std::span<const double> a,
                              std::span<const double> a_error,
                              std::span<const double> b,
                              std::span<const double> b_error) {
  TermSums terms;
  for (size_t k = 0; k < a.size(); ++k) {
    const double ea = a_error.empty() ? 0 : a_error[k];
    const double eb = b_error.empty() ? 0 : b_error[k];
    terms.add(a[k] * b[k], ea * std::abs(b[k]) + std::abs(a[k]) * eb + ea * eb);
  }
  return {.value = terms.sum, .error = order_error(model, terms) + terms.input_error};
}

}  // namespace reference
