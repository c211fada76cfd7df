#include "reference/tensor_core/fit.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

constexpr int kMinBits = 7;
constexpr int kMaxAlignBits = 40;
constexpr int kMaxStepLen = 64;
constexpr Rounding kRoundings[] = {Rounding::kTowardZero, Rounding::kDown, Rounding::kNearestEven};

// One sentence when the rules that fit differ in a parameter.
void note_spread(const Fit& fit,
                 const std::string& parameter,
                 const std::function<std::string(const Path&)>& value,
                 std::vector<std::string>& notes) {
  std::vector<std::string> seen;
  for (const Path& path : fit.paths) {
    const std::string text = value(path);
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) {
      seen.push_back(text);
    }
  }
  if (seen.size() > 1) {
    notes.push_back(fmt::format("{}: {} explain all rows", parameter, fmt::join(seen, ", ")));
  }
}

// What no row exercises is not known, however well the rest fits.
void note_unexercised(const VectorSet& set, std::vector<std::string>& notes) {
  bool special = false;
  bool subnormal = false;
  bool zero_product = false;
  bool tiny = false;
  for (const Vector& row : set.rows) {
    for (size_t i = 0; i < row.a.size(); ++i) {
      const Number x = unpack(set.format, row.a[i]);
      const Number y = unpack(set.format, row.b[i]);
      special = special || x.kind != Number::Kind::kFinite || y.kind != Number::Kind::kFinite;
      zero_product = zero_product || x.is_zero() != y.is_zero();
      for (const Number& number : {x, y}) {
        subnormal = subnormal || (number.mantissa != 0 && number.mantissa >> fraction_bits(set.format) == 0);
      }
    }
    const Number d = unpack(set.out, row.d);
    tiny = tiny || (d.mantissa != 0 && d.exponent <= smallest_exponent(set.out));
  }
  const auto note = [&](bool seen, const std::string& sentence) {
    if (!seen) {
      notes.push_back(sentence);
    }
  };
  note(special, "NaN and infinity: no operand is one");
  note(subnormal, "subnormal operands: there are none");
  note(zero_product, "zero times a number: no row has one, so whether it takes part in the largest exponent is open");
  note(tiny, "the smallest exponent that terms are aligned to: no result is near the limit of its format");
}

}  // namespace

Fit fit_step(const VectorSet& set) {
  CHECK(!set.rows.empty());
  Fit fit;
  size_t longest = 0;
  for (const Vector& row : set.rows) {
    longest = std::max(longest, row.a.size());
  }
  const bool fp16_out = set.out == Format::kFp16;
  const auto try_rule = [&](const StepRule& step, Chain chain, Accumulator accumulator) {
    Path path{.name = std::string(accumulator_text(chain, accumulator)),
              .formats = {set.format},
              .step = step,
              .chain = chain,
              .accumulator = accumulator,
              .evidence = Evidence::kUser};
    if (writes(path, set.out) && agrees(set, path)) {
      fit.paths.push_back(std::move(path));
    }
  };
  const auto try_roundings = [&](StepRule step, Chain chain) {
    for (const Rounding align : kRoundings) {
      for (const Rounding result : kRoundings) {
        if (fp16_out && result != Rounding::kTowardZero) {
          continue;  // an FP16 result has one rounding
        }
        step.align = align;
        step.result = result;
        if (chain == Chain::kUnpackedPairs) {
          try_rule(step, chain, Accumulator::kIntoUnit);
          continue;
        }
        for (const Accumulator accumulator :
             {Accumulator::kIntoUnit, Accumulator::kIgnored, Accumulator::kAddedAfter}) {
          try_rule(step, chain, accumulator);
        }
      }
    }
  };
  const int min_result_bits = fp16_out ? fraction_bits(set.out) : kMinBits;
  const int max_result_bits = fp16_out ? fraction_bits(set.out) : fraction_bits(Format::kFp32);
  // The first length that holds a whole row stands for all longer ones.
  for (int len = 1; len <= kMaxStepLen; len *= 2) {
    for (int align_bits = kMinBits; align_bits <= kMaxAlignBits; ++align_bits) {
      for (int result_bits = min_result_bits; result_bits <= max_result_bits; ++result_bits) {
        try_roundings({.num_products = len, .align_bits = align_bits, .result_bits = result_bits}, Chain::kSteps);
      }
    }
    if (static_cast<size_t>(len) >= longest) {
      break;
    }
  }
  if (set.format == Format::kE4m3 || set.format == Format::kE5m2) {
    for (int align_bits = kMinBits; align_bits <= kMaxAlignBits; ++align_bits) {
      try_roundings({.num_products = 16, .align_bits = align_bits, .result_bits = 23}, Chain::kUnpackedPairs);
    }
  }
  if (fit.paths.empty()) {
    return fit;
  }
  note_spread(
      fit, "L", [](const Path& p) { return std::to_string(p.step.num_products); }, fit.unknown);
  note_spread(
      fit, "F", [](const Path& p) { return std::to_string(p.step.align_bits); }, fit.unknown);
  note_spread(
      fit, "P", [](const Path& p) { return std::to_string(p.step.result_bits); }, fit.unknown);
  note_spread(
      fit,
      "rounding at alignment",
      [](const Path& p) { return std::string(rounding_name(p.step.align)); },
      fit.unknown);
  note_spread(
      fit,
      "rounding of the result",
      [](const Path& p) { return std::string(rounding_name(p.step.result)); },
      fit.unknown);
  note_spread(
      fit,
      "what becomes of c",
      [](const Path& p) { return std::string(accumulator_text(p.chain, p.accumulator)); },
      fit.unknown);
  if (static_cast<size_t>(fit.paths.back().step.num_products) >= longest) {
    fit.unknown.push_back(fmt::format("steps longer than {} products: no row has more", longest));
  }
  note_unexercised(set, fit.unknown);
  return fit;
}

}  // namespace reference::tensor_core
