// Faults in the activations of an FP8 linear: their scales and codes.
#include <algorithm>
#include <bit>
#include <cmath>

#include "reference/numerics/fp8.hpp"
#include "tools/faults/fp8_linear.hpp"

namespace tools::faults {
namespace {

using reference::round_to_f8_e4m3;

// One scale in place of the block's; codes to nearest.
FaultyOp with_scale_of(
    std::function<float(const ActivationRows&, int64_t row, size_t block, std::span<const float>)> scale_of) {
  return with_kernel({.quantise = [scale_of = std::move(scale_of)](const ActivationRows& rows) {
    return quantised(
        rows,
        [&](int64_t m, size_t block, std::span<const float> x) { return scale_of(rows, m, block, x); },
        round_to_f8_e4m3);
  }});
}

FaultyOp with_codes(std::function<float(float)> code_of) {
  return with_kernel({.quantise = [code_of = std::move(code_of)](const ActivationRows& rows) {
    return quantised(
        rows, [](int64_t, size_t, std::span<const float> x) { return published_scale(x); }, code_of);
  }});
}

// Largest E4M3 number that is not larger in magnitude.
float truncated_code(float x) {
  const float nearest = round_to_f8_e4m3(x);
  if (std::isnan(nearest) || std::abs(nearest) <= std::abs(x)) {
    return nearest;
  }
  const float magnitude = std::abs(nearest);
  const float below =
      magnitude > 0x1p-6F ? std::ldexp(1.0F, std::ilogb(std::nextafterf(magnitude, 0.0F)) - 3) : 0x1p-9F;
  return std::copysign(magnitude - below, x);
}

// Ties go away from zero instead of to even.
float code_with_ties_away(float x) {
  const float low = truncated_code(x);
  const float next = std::abs(low) >= 0x1p-6F ? std::ldexp(1.0F, std::ilogb(low) - 3) : 0x1p-9F;
  return std::abs(x) - std::abs(low) >= next / 2 ? round_to_f8_e4m3(std::copysign(std::abs(low) + next, x)) : low;
}

float power_of_two_below(float scale) {
  return std::ldexp(1.0F, std::ilogb(scale));
}

}  // namespace

std::vector<Fault> quantiser_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-36",
                              "an all-zero block of activations gets scale 0",
                              "layer.0.ffn",
                              on_nano(),
                              with_scale_of([](const ActivationRows&, int64_t, size_t, std::span<const float> x) {
                                return largest_magnitude(x) / 448.0F;
                              })));
  faults.push_back(make_fault("k-03",
                              "amax is at least 1e-3 instead of 1e-4",
                              "layer.0.attn.q_a",
                              on_edge(),
                              with_scale_of([](const ActivationRows&, int64_t, size_t, std::span<const float> x) {
                                return std::max(largest_magnitude(x), 1e-3F) / 448.0F;
                              })));
  faults.push_back(
      make_fault("k-04",
                 "each row is quantised with the scales of the row before",
                 "layer.*.attn.q_a",
                 on_nano(),
                 with_scale_of([](const ActivationRows& rows, int64_t m, size_t block, std::span<const float> x) {
                   const auto before = rows.row(std::max<int64_t>(m - 1, 0)).subspan(block * 128, x.size());
                   return published_scale(before);
                 })));
  faults.push_back(make_fault("k-05",
                              "codes are multiplied by the scale that belongs to the row before",
                              "layer.*.attn.kv_a",
                              on_nano(),
                              with_kernel({.stage = [](QuantizedRows& rows) {
                                for (size_t m = rows.size(); m-- > 1;) {
                                  rows[m].scales = rows[m - 1].scales;
                                }
                              }})));
  faults.push_back(make_fault("k-06",
                              "one activation scale for the whole tensor",
                              "layer.*.attn.q_a",
                              on_nano(),
                              with_scale_of([](const ActivationRows& rows, int64_t, size_t, std::span<const float>) {
                                return published_scale(rows.x);
                              })));
  faults.push_back(make_fault("k-07",
                              "one activation scale for a whole row",
                              "layer.*.attn.q_a",
                              on_nano(),
                              with_scale_of([](const ActivationRows& rows, int64_t m, size_t, std::span<const float>) {
                                return published_scale(rows.row(m));
                              })));
  faults.push_back(make_fault("k-08",
                              "amax is taken over the first half of each block",
                              "layer.*.attn.o_proj",
                              on_nano(),
                              with_scale_of([](const ActivationRows&, int64_t, size_t, std::span<const float> x) {
                                return published_scale(x.first(x.size() / 2));
                              })));
  faults.push_back(make_fault("k-09", "codes reach only to 240", "layer.*.mlp.gate", on_nano(), with_codes([](float x) {
                                return std::clamp(round_to_f8_e4m3(x), -240.0F, 240.0F);
                              })));
  faults.push_back(make_fault(
      "k-10", "codes are truncated instead of rounded", "layer.*.attn.q_b", on_nano(), with_codes(truncated_code)));
  // With a power of two as scale, BF16 inputs do hit ties.
  faults.push_back(make_fault("k-11",
                              "power-of-two scales, codes with ties away from zero",
                              "layer.*.attn.kv_a",
                              on_nano(),
                              with_kernel({.quantise = [](const ActivationRows& rows) {
                                return quantised(
                                    rows,
                                    [](int64_t, size_t, std::span<const float> x) {
                                      return reference::round_up_to_power_of_two(published_scale(x));
                                    },
                                    code_with_ties_away);
                              }})));
  faults.push_back(make_fault("k-12",
                              "power-of-two scales are rounded down, codes saturate",
                              "layer.*.attn.q_a",
                              on_nano(),
                              with_scale_of([](const ActivationRows&, int64_t, size_t, std::span<const float> x) {
                                return power_of_two_below(published_scale(x));
                              })));
  faults.push_back(make_fault("k-13",
                              "activation scales are stored in BF16, cut off",
                              "layer.*.ffn",
                              on_ragged(),
                              with_kernel({.stage = [](QuantizedRows& rows) {
                                for (auto& row : rows) {
                                  for (float& scale : row.scales) {
                                    scale = static_cast<float>(truncated_to_bf16(scale));
                                  }
                                }
                              }})));
  return faults;
}

}  // namespace tools::faults
