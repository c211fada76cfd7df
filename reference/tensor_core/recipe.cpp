#include "reference/tensor_core/recipe.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

const std::vector<Format> k16Bit{Format::kBf16, Format::kFp16};
const std::vector<Format> kTf32{Format::kTf32};
const std::vector<Format> kFp8{Format::kE4m3, Format::kE5m2};

// L, F, P of each unit: docs/numerics.md, section 7, which names the source of each row.
constexpr StepRule ampere_step(int num_products) {
  return {.num_products = num_products, .align_bits = 24, .result_bits = 23, .floor_below = 6};
}
constexpr StepRule hopper_step(int num_products) {
  return {.num_products = num_products, .align_bits = 25, .result_bits = 23, .floor_below = 7};
}
constexpr StepRule kAdaFp8{.num_products = 16, .align_bits = 13, .result_bits = 13, .floor_below = 6};
constexpr StepRule kHopperFp8{.num_products = 32, .align_bits = 13, .result_bits = 13, .floor_below = 7};

const Path kUnpackedFp8{.name = "mma.sync",
                        .formats = kFp8,
                        .step = hopper_step(16),
                        .chain = Chain::kUnpackedPairs,
                        .evidence = Evidence::kAssembly};

// E4M3 and E5M2 numbers are FP16 numbers.
uint32_t as_fp16(Format format, uint32_t code) {
  if (format == Format::kE5m2) {
    return code << 8;
  }
  CHECK(format == Format::kE4m3);
  const Number x = unpack(format, code);
  const uint32_t sign = x.negative ? 0x8000 : 0;
  if (x.kind == Number::Kind::kNan) {
    return sign | kNanFp16;
  }
  if (x.mantissa == 0) {
    return sign;
  }
  // Normalised: FP16 reaches far below E4M3's subnormal numbers.
  const int shift = fraction_bits(format) + 1 - std::bit_width(static_cast<uint32_t>(x.mantissa));
  const auto fraction = (static_cast<uint32_t>(x.mantissa) << (shift + 7)) & 0x3FF;
  return sign | static_cast<uint32_t>(x.exponent - shift + 15) << 10 | fraction;
}

uint32_t add_fp32(uint32_t x, uint32_t y) {
  const float sum = std::bit_cast<float>(x) + std::bit_cast<float>(y);
  return std::isnan(sum) ? kNanFp32 : std::bit_cast<uint32_t>(sum);
}

uint32_t unpacked_pairs_dot(
    const Path& path, Format format, std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c) {
  constexpr size_t kLen = 32;
  for (size_t begin = 0; begin < a.size(); begin += kLen) {
    uint32_t sum = 0;
    for (const size_t half : {size_t{0}, size_t{2}}) {
      std::array<uint32_t, kLen / 2> a_half{};
      std::array<uint32_t, kLen / 2> b_half{};
      for (size_t i = 0; i < kLen / 2; ++i) {
        const size_t k = begin + 4 * (i / 2) + half + i % 2;
        if (k < a.size()) {
          a_half[i] = as_fp16(format, a[k]);
          b_half[i] = as_fp16(format, b[k]);
        }
      }
      sum = tc_step(path.step, Format::kFp16, a_half, b_half, sum);
    }
    c = add_fp32(c, sum);
  }
  return c;
}

std::string_view rounding_text(Rounding rounding) {
  switch (rounding) {
    case Rounding::kTowardZero: return "cut toward zero";
    case Rounding::kDown: return "rounded down";
    case Rounding::kNearestEven: return "rounded to nearest even";
  }
  return "";
}

}  // namespace

std::string_view rounding_name(Rounding rounding) {
  switch (rounding) {
    case Rounding::kTowardZero: return "toward_zero";
    case Rounding::kDown: return "down";
    case Rounding::kNearestEven: return "nearest_even";
  }
  return "";
}

std::string_view evidence_text(Evidence evidence) {
  switch (evidence) {
    case Evidence::kVectors: return "reproduces published vectors measured on hardware";
    case Evidence::kAssembly: return "read off the machine code; its steps as measured";
    case Evidence::kModelCode: return "stated by one published model, not held against measured vectors";
    case Evidence::kUser: return "stated by the user";
  }
  return "";
}

std::string_view accumulator_text(Chain chain, Accumulator accumulator) {
  if (chain == Chain::kUnpackedPairs || accumulator == Accumulator::kAddedAfter) {
    return "c added in FP32";
  }
  return accumulator == Accumulator::kIgnored ? "c not used" : "c in the step";
}

bool writes(const Path& path, Format out) {
  return out == Format::kFp32 || (path.chain == Chain::kSteps && path.accumulator != Accumulator::kAddedAfter);
}

uint32_t path_dot(
    const Path& path, Format format, std::span<const uint32_t> a, std::span<const uint32_t> b, uint32_t c, Format out) {
  CHECK_EQ(a.size(), b.size());
  CHECK(writes(path, out));
  if (path.chain == Chain::kUnpackedPairs) {
    return unpacked_pairs_dot(path, format, a, b, c);
  }
  const auto step_len = static_cast<size_t>(path.step.num_products);
  uint32_t d = path.accumulator == Accumulator::kIntoUnit ? c : 0;
  for (size_t begin = 0; begin < a.size(); begin += step_len) {
    const size_t len = std::min(step_len, a.size() - begin);
    d = tc_step(path.step, format, a.subspan(begin, len), b.subspan(begin, len), d, out);
  }
  return path.accumulator == Accumulator::kAddedAfter ? add_fp32(c, d) : d;
}

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> list{
      {"ampere",
       {{.name = "mma.sync", .formats = k16Bit, .step = ampere_step(8)},
        {.name = "mma.sync", .formats = kTf32, .step = ampere_step(4)}}},
      {"ada",
       {{.name = "mma.sync", .formats = k16Bit, .step = ampere_step(8)},
        {.name = "mma.sync", .formats = kTf32, .step = ampere_step(4)},
        {.name = "mma.sync", .formats = kFp8, .step = kAdaFp8}}},
      {"hopper",
       {{.name = "wgmma", .formats = k16Bit, .step = hopper_step(16)},
        {.name = "wgmma", .formats = kTf32, .step = hopper_step(8)},
        {.name = "wgmma", .formats = kFp8, .step = kHopperFp8},
        {.name = "wgmma, scale-d 0", .formats = kFp8, .step = kHopperFp8, .accumulator = Accumulator::kIgnored},
        kUnpackedFp8}},
      {"blackwell",
       {{.name = "mma.sync", .formats = k16Bit, .step = hopper_step(16)},
        {.name = "mma.sync", .formats = kTf32, .step = hopper_step(8)},
        {.name = "tcgen05", .formats = kFp8, .step = hopper_step(32), .evidence = Evidence::kModelCode},
        {.name = "tcgen05, scale-d 0",
         .formats = kFp8,
         .step = hopper_step(32),
         .accumulator = Accumulator::kIgnored,
         .evidence = Evidence::kModelCode},
        {.name = "tcgen05, c added in FP32",
         .formats = kFp8,
         .step = hopper_step(32),
         .accumulator = Accumulator::kAddedAfter,
         .evidence = Evidence::kModelCode},
        kUnpackedFp8}},
  };
  return list;
}

const Recipe& find_recipe(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) {
      return recipe;
    }
    names.push_back(recipe.name);
  }
  model::throw_input_error("recipe {}: expected {}", name, fmt::join(names, ", "));
}

std::vector<const Path*> paths_for(const Recipe& recipe, Format format) {
  std::vector<const Path*> found;
  for (const Path& path : recipe.paths) {
    if (std::find(path.formats.begin(), path.formats.end(), format) != path.formats.end()) {
      found.push_back(&path);
    }
  }
  if (found.empty()) {
    model::throw_input_error("recipe {} has no tensor cores for {}", recipe.name, format_name(format));
  }
  return found;
}

std::string describe_path(const Path& path) {
  return fmt::format("{}: {}{} products a step, {} bits below the largest exponent ({}), {} fraction bits ({})",
                     path.name,
                     path.chain == Chain::kUnpackedPairs ? "two FP16 steps added to c in FP32, " : "",
                     path.step.num_products,
                     path.step.align_bits,
                     rounding_text(path.step.align),
                     path.step.result_bits,
                     rounding_text(path.step.result));
}

}  // namespace reference::tensor_core
