// The step of a tensor core: known answers, special values, and the floating-point form against the integers that define it.
#include "reference/tensor_core/step.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "reference/numerics/bf16.hpp"
#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {
namespace {

constexpr StepRule kAmpere{.num_products = 8, .align_bits = 24, .result_bits = 23, .floor_below = 6};
constexpr StepRule kHopper{.num_products = 16, .align_bits = 25, .result_bits = 23};

uint32_t fp32(double value) {
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

uint32_t bf16(double value) {
  return encode_bf16(static_cast<float>(value));
}

// A number that E4M3 holds, as its code: found by decoding all codes.
uint32_t e4m3(double value) {
  for (uint32_t code = 0; code < 256; ++code) {
    const Number x = unpack(Format::kE4m3, code);
    const double decoded = std::ldexp(x.mantissa, x.exponent - 3) * (x.negative ? -1 : 1);
    if (x.kind == Number::Kind::kFinite && decoded == value) {
      return code;
    }
  }
  throw std::invalid_argument("not an E4M3 number");
}

struct Products {
  double c = 0;
  std::vector<std::pair<double, double>> pairs;  // k ascending; the rest is zero
};

template <typename Encode>
uint32_t dot(const std::string& recipe, size_t path_idx, Format format, size_t len, const Products& p, Encode encode) {
  std::vector<uint32_t> a(len, 0);
  std::vector<uint32_t> b(len, 0);
  for (size_t k = 0; k < p.pairs.size(); ++k) {
    a[k] = encode(p.pairs[k].first);
    b[k] = encode(p.pairs[k].second);
  }
  const Path& path = *paths_for(find_recipe(recipe), format)[path_idx];
  return path_dot(path, format, a, b, fp32(p.c));
}

uint32_t ampere(const Products& p) {
  return dot("ampere", 0, Format::kBf16, 16, p, bf16);
}
uint32_t hopper(const Products& p) {
  return dot("hopper", 0, Format::kBf16, 16, p, bf16);
}

const double k12 = std::ldexp(1, -12);
const double k13 = std::ldexp(1, -13);

std::vector<std::pair<double, double>> times(int count, double x, double y) {
  return std::vector<std::pair<double, double>>(static_cast<size_t>(count), {x, y});
}

// The answers are those of numerics tables computed with a model that reproduces the published hardware vectors.
TEST(TensorCoreStep, Bf16_KnownAnswers) {
  struct Case {
    Products products;
    uint32_t on_ampere;
    uint32_t on_hopper;
  };
  auto unlike = times(7, 1, 1);
  unlike.emplace_back(-std::ldexp(1, 13), std::ldexp(1, 12));
  std::vector<std::pair<double, double>> apart(9, {0, 0});
  apart[0] = apart[8] = {k12, k12};
  const std::vector<Case> cases{
      {{1, times(2, k12, k12)}, 0x3f800001, 0x3f800001},
      {{1, times(4, k12, k13)}, 0x3f800000, 0x3f800001},
      {{1, times(8, k13, k13)}, 0x3f800000, 0x3f800000},
      {{std::ldexp(1, 25), unlike}, 0x00000000, 0x40e00000},
      {{0, {{1.5, 1.5}, {-k12, k13}}}, 0x40100000, 0x400fffff},
      {{1, apart}, 0x3f800000, 0x3f800001},
      {{-1, times(3, -k12, k12)}, 0xbf800001, 0xbf800001},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(ampere(cases[i].products), cases[i].on_ampere) << "case " << i;
    EXPECT_EQ(hopper(cases[i].products), cases[i].on_hopper) << "case " << i;
  }
}

TEST(TensorCoreStep, Fp8_KnownAnswers) {
  const double k7 = std::ldexp(1, -7);
  const double k6 = std::ldexp(1, -6);
  auto one_and_two = times(3, k7, k7);
  one_and_two[0] = {1, 1};
  auto large_and_small = times(17, 0.125, 0.125);
  large_and_small[0] = {256, 1};
  struct Case {
    Products products;
    uint32_t wgmma_and_ada;
    uint32_t tcgen05_and_pairs;
  };
  const std::vector<Case> cases{
      {{1 + std::ldexp(1, -14), {}}, 0x3f800000, 0x3f800200},
      {{0, one_and_two}, 0x3f800000, 0x3f800400},
      {{0, {{1.5, 1.5}, {-k7, k6}}}, 0x400ffc00, 0x400ffe00},
      {{0, large_and_small}, 0x43800000, 0x43802000},
  };
  const auto run = [](const std::string& recipe, const std::string& name, const Products& p) {
    const auto paths = paths_for(find_recipe(recipe), Format::kE4m3);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (paths[i]->name == name) {
        return dot(recipe, i, Format::kE4m3, 32, p, e4m3);
      }
    }
    throw std::invalid_argument(name);
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(run("hopper", "wgmma", cases[i].products), cases[i].wgmma_and_ada) << "case " << i;
    EXPECT_EQ(run("ada", "mma.sync", cases[i].products), cases[i].wgmma_and_ada) << "case " << i;
    EXPECT_EQ(run("blackwell", "tcgen05", cases[i].products), cases[i].tcgen05_and_pairs) << "case " << i;
    EXPECT_EQ(run("hopper", "mma.sync", cases[i].products), cases[i].tcgen05_and_pairs) << "case " << i;
  }
}

// ptxas unpacks the two low bytes of each register for the first FP16 step, and a register holds four successive k. A large product in
// one step makes the other products of that step lose their bits, those of the other step keep them.
TEST(TensorCoreStep, UnpackedPairs_StepsTakeTwoOfFourProducts) {
  const double small = std::ldexp(1, -9);
  const auto with_small_at = [&](size_t k) {
    Products p{0, times(32, 0, 0)};
    p.pairs[0] = {448, 448};
    p.pairs[1] = {-448, 448};
    p.pairs[k] = {small, small};
    const auto paths = paths_for(find_recipe("hopper"), Format::kE4m3);
    size_t idx = 0;
    while (paths[idx]->name != "mma.sync") {
      ++idx;
    }
    return dot("hopper", idx, Format::kE4m3, 32, p, e4m3);
  };
  const uint32_t kept = fp32(small * small);
  for (const size_t k : {2u, 3u, 6u, 7u, 18u, 31u}) {
    EXPECT_EQ(with_small_at(k), kept) << k;
  }
  for (const size_t k : {4u, 5u, 16u, 29u}) {
    EXPECT_EQ(with_small_at(k), 0u) << k;
  }
}

uint32_t step_of(const StepRule& rule, std::vector<uint32_t> a, std::vector<uint32_t> b, uint32_t c) {
  return tc_step(rule, Format::kBf16, a, b, c);
}

TEST(TensorCoreStep, SpecialValues_FollowTheRule) {
  const uint32_t inf = 0x7F80;
  const uint32_t minus_inf = 0xFF80;
  const uint32_t one = 0x3F80;
  EXPECT_EQ(step_of(kHopper, {0x7FC1}, {one}, 0), kNanFp32);
  EXPECT_EQ(step_of(kHopper, {one}, {one}, 0xFFC00000), kNanFp32);
  EXPECT_EQ(step_of(kHopper, {inf}, {0}, 0), kNanFp32);
  EXPECT_EQ(step_of(kHopper, {0x8000}, {inf}, 0), kNanFp32);
  EXPECT_EQ(step_of(kHopper, {inf, minus_inf}, {one, one}, 0), kNanFp32);
  EXPECT_EQ(step_of(kHopper, {inf}, {one}, 0xFF800000), kNanFp32);
  EXPECT_EQ(step_of(kHopper, {inf, one}, {one, one}, fp32(-3)), 0x7F800000u);
  EXPECT_EQ(step_of(kHopper, {inf}, {0xBF80}, 0), 0xFF800000u);
  // Overflow of the result only: products beyond FP32's range may cancel.
  EXPECT_EQ(step_of(kHopper, {0x7F00}, {0x7F00}, 0), 0x7F800000u);
  EXPECT_EQ(step_of(kHopper, {0x7F00, 0xFF00}, {0x7F00, 0x7F00}, 0), 0u);
  // Exact cancellation and sums of nothing are +0; a zero next to a huge number is no term.
  EXPECT_EQ(step_of(kHopper, {0x8000}, {one}, 0x80000000), 0u);
  EXPECT_EQ(step_of(kHopper, {0}, {0x7F00}, 0x00000001), 0x00000001u);
}

TEST(TensorCoreStep, Fp16Result_RoundsToNearestEven) {
  const std::vector<uint32_t> one{0x3C00};
  const auto with = [&](uint32_t b, uint32_t c) {
    return tc_step(kHopper, Format::kFp16, one, std::vector{b}, c, Format::kFp16);
  };
  EXPECT_EQ(with(0x1000, 0x3C00), 0x3C00u);  // 1 + 2^-11: a tie, to even
  EXPECT_EQ(with(0x1001, 0x3C00), 0x3C01u);
  EXPECT_EQ(with(0x1000, 0x3C01), 0x3C02u);  // a tie, away from odd
  EXPECT_EQ(with(0x4C00, 0x7BFF), 0x7C00u);  // 65504 + 16: a tie between the largest number and 2^16
  EXPECT_EQ(with(0x0001, 0x0001), 0x0002u);
  EXPECT_EQ(with(0x8001, 0x0400), 0x03FFu);
}

// Codes that stress one thing at a time.
std::vector<uint32_t> draw_codes(std::mt19937& random, Format format, size_t len, int kind) {
  std::vector<uint32_t> codes;
  const uint32_t sign = 1u << (code_bits(format) - 1);
  for (size_t i = 0; i < len; ++i) {
    const uint32_t code = random();
    switch (kind) {
      case 0: codes.push_back(code & (2 * sign - 1)); break;       // anything, specials included
      case 1: codes.push_back((code & sign) | (code % 9)); break;  // subnormal or zero
      case 2: codes.push_back((code & sign) | ((sign / 2 + code % 64) & (sign - 1))); break;  // near one: cancellation
      default: codes.push_back(i % 3 == 0 ? 0 : code & (2 * sign - 1));  // zeros beside a huge spread
    }
  }
  return codes;
}

TEST(TensorCoreStep, FloatForm_HasTheBitsOfTheIntegers) {
  std::mt19937 random(1);
  const std::vector<StepRule> rules{kAmpere,
                                    kHopper,
                                    {.num_products = 32, .align_bits = 13, .result_bits = 13},
                                    {.num_products = 16, .align_bits = 13, .result_bits = 13, .floor_below = 6},
                                    {.num_products = 4, .align_bits = 35, .result_bits = 23}};
  for (const Format format : {Format::kBf16, Format::kFp16, Format::kTf32, Format::kE4m3, Format::kE5m2}) {
    for (const StepRule& rule : rules) {
      for (int i = 0; i < 1500; ++i) {
        const auto len = static_cast<size_t>(rule.num_products);
        const auto a = draw_codes(random, format, len, i % 4);
        const auto b = draw_codes(random, format, len, (i / 4) % 4);
        for (const Format out : {Format::kFp32, Format::kFp16}) {
          const uint32_t c = draw_codes(random, out, 1, (i / 16) % 3)[0];
          const uint32_t expected = tc_step(rule, format, a, b, c, out);
          ASSERT_EQ(tc_step_float(rule, format, a, b, c, out), expected) << format_name(format) << " case " << i;
        }
      }
    }
  }
}

// Exact sums in a step: the order of its products cannot matter.
TEST(TensorCoreStep, PermutedProducts_GiveTheSameBits) {
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    auto a = draw_codes(random, Format::kBf16, 16, 2);
    auto b = draw_codes(random, Format::kBf16, 16, 2);
    const uint32_t c = random();
    const uint32_t expected = tc_step(kHopper, Format::kBf16, a, b, c);
    std::rotate(a.begin(), a.begin() + 5, a.end());
    std::rotate(b.begin(), b.begin() + 5, b.end());
    EXPECT_EQ(tc_step(kHopper, Format::kBf16, a, b, c), expected);
  }
}

}  // namespace
}  // namespace reference::tensor_core
