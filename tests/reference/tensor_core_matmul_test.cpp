// A whole product on tensor cores, computed fast, against the definition of each of its outputs.
#include "reference/tensor_core/recipe_matmul.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cfenv>
#include <map>
#include <memory>
#include <random>

#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/recipe_file.hpp"
#include "tests/reference/hand_made.hpp"

namespace reference::tensor_core {
namespace {

struct Shape {
  int64_t rows;
  int64_t out_dim;
  int64_t in_dim;
};

// Kinds of numbers, so that terms cancel, vanish beside others, or are no numbers at all.
uint8_t e4m3(std::mt19937& random, int kind) {
  const uint32_t bits = random();
  uint32_t magnitude = bits & 0x7F;
  switch (kind) {
    case 0: break;
    case 1: magnitude %= 9; break;                                    // zeros and subnormal numbers
    case 2: magnitude = 0x38 + magnitude % 3; break;                  // of one size
    case 3: magnitude = bits % 5 != 0 ? magnitude % 2 : 0x7E; break;  // the largest beside the smallest
    case 4: magnitude = bits % 3 == 0 ? 0x78 + magnitude % 7 : 0; break;
    default: magnitude = bits % 300 == 0 ? 0x7F : magnitude;  // a NaN now and then
  }
  magnitude = kind != 5 && magnitude == 0x7F ? 0x7E : magnitude;
  return static_cast<uint8_t>(magnitude | (bits >> 24 & 0x80));
}

uint16_t bf16(std::mt19937& random, int kind) {
  const uint32_t bits = random();
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t fraction = bits & 0x7F;
  const auto with_exponent = [&](uint32_t field) { return static_cast<uint16_t>(sign | field << 7 | fraction); };
  switch (kind) {
    case 0: return with_exponent(127 - bits / 128 % 6);
    case 1: return with_exponent(bits / 128 % 200);        // products beyond both ends of what counts
    case 2: return with_exponent(bits % 3 == 0 ? 0 : 90);  // subnormal numbers and zeros
    case 3: return bits % 4 == 0 ? with_exponent(127) : uint16_t{0};
    case 4: return with_exponent(120 + bits / 128 % 16);
    default: return with_exponent(bits % 200 == 0 ? 255 : 180 + bits / 128 % 60);  // infinities, NaN, overflow
  }
}

struct Product {
  explicit Product(const Shape& shape) : x(shape.rows, shape.in_dim) {}

  HandMadeWeights weights;
  BlockedRows x;
};

std::unique_ptr<Product> fp8_product(const Shape& shape, uint32_t seed, bool hostile) {
  std::mt19937 random(seed);
  const auto kind = [&](int64_t k) {
    return hostile ? static_cast<int>((seed + static_cast<uint32_t>(k) / 32) % 6) : 0;
  };
  auto product = std::make_unique<Product>(shape);
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < shape.out_dim * shape.in_dim; ++i) {
    codes.push_back(hostile ? e4m3(random, kind(i % shape.in_dim)) : e4m3(random, 0));
  }
  product->weights.set("w", model::make_tensor(model::DType::kF8E4M3, {shape.out_dim, shape.in_dim}, codes));
  const int64_t scale_rows = (shape.out_dim + 127) / 128;
  const int64_t scale_cols = (shape.in_dim + 127) / 128;
  std::vector<float> scales;
  for (int64_t i = 0; i < scale_rows * scale_cols; ++i) {
    scales.push_back(std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000, -static_cast<int>(random() % 9)));
  }
  product->weights.set("w_scale_inv", model::make_tensor(model::DType::kF32, {scale_rows, scale_cols}, scales));
  for (int64_t m = 0; m < shape.rows; ++m) {
    std::vector<float> row;
    for (int64_t k = 0; k < shape.in_dim; ++k) {
      row.push_back(model::decode_f8_e4m3(e4m3(random, kind(k))) / 448);
    }
    product->x.set_quantised(m, row, {});
  }
  return product;
}

std::unique_ptr<Product> bf16_product(const Shape& shape, uint32_t seed, bool hostile) {
  std::mt19937 random(seed);
  const auto kind = [&](int64_t k) {
    return hostile ? static_cast<int>((seed + static_cast<uint32_t>(k) / 48) % 6) : 0;
  };
  auto product = std::make_unique<Product>(shape);
  std::vector<uint16_t> codes;
  for (int64_t i = 0; i < shape.out_dim * shape.in_dim; ++i) {
    codes.push_back(bf16(random, kind(i % shape.in_dim)));
  }
  product->weights.set("w", model::make_tensor(model::DType::kBF16, {shape.out_dim, shape.in_dim}, codes));
  for (int64_t m = 0; m < shape.rows; ++m) {
    std::vector<float> row;
    for (int64_t k = 0; k < shape.in_dim; ++k) {
      row.push_back(model::decode_bf16(bf16(random, kind(k))));
    }
    product->x.set(m, row);
  }
  return product;
}

void expect_same_bits(const Recipe& recipe, const std::unique_ptr<Product>& product, const std::string& what) {
  const WeightMatrix weight(product->weights, "w");
  const auto expected = recipe_matmul_plain(recipe, product->x, weight, 1);
  for (const simd::Level level : simd::supported_levels()) {
    const auto got = recipe_matmul(recipe, product->x, weight, 2, level);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t n = 0; n < got.size(); ++n) {
      const bool both_nan = std::isnan(got[n]) && std::isnan(expected[n]);
      ASSERT_TRUE(both_nan || std::bit_cast<uint32_t>(got[n]) == std::bit_cast<uint32_t>(expected[n]))
          << recipe.name << " " << what << ", " << simd::level_name(level) << ", output " << n << ": " << got[n]
          << " for " << expected[n];
    }
  }
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

constexpr Shape kWhole{3, 32, 256};
constexpr Shape kOneRow{1, 32, 256};
constexpr Shape kRagged{2, 21, 331};

TEST(TensorCoreMatmul, Fp8_HasTheBitsOfTheDefinition) {
  for (const auto& recipe : linear_recipes()) {
    if (recipe->name == "ampere") {
      continue;  // has no FP8
    }
    expect_same_bits(*recipe, fp8_product(kWhole, 1, false), "ordinary");
    for (uint32_t seed = 0; seed < 6; ++seed) {
      expect_same_bits(*recipe, fp8_product(kWhole, seed, true), "hostile");
    }
    expect_same_bits(*recipe, fp8_product(kRagged, 2, true), "ragged");
    expect_same_bits(*recipe, fp8_product(kOneRow, 3, true), "one row");
  }
}

TEST(TensorCoreMatmul, Bf16_HasTheBitsOfTheDefinition) {
  for (const char* name : {"hopper", "ampere"}) {
    const Recipe& recipe = *find_linear_recipe(name);
    expect_same_bits(recipe, bf16_product(kWhole, 1, false), "ordinary");
    for (uint32_t seed = 0; seed < 6; ++seed) {
      expect_same_bits(recipe, bf16_product(kWhole, seed, true), "hostile");
    }
    expect_same_bits(recipe, bf16_product(kRagged, 2, true), "ragged");
  }
}

// -2^-155 is kept beside nothing else, but FP32 has no such number.
TEST(TensorCoreMatmul, NegativeResultsBelowEverySubnormalNumber_ArePlusZero) {
  HandMadeWeights weights;
  std::vector<float> w(16 * 16, 0.0f);
  for (size_t n = 0; n < 16; ++n) {
    w[n * 16] = -0x1p-80f;
  }
  weights.set("w", reference::bf16({16, 16}, w));
  BlockedRows x(1, 16);
  x.set(0, std::vector<float>(16, 0x1p-75f));
  for (const simd::Level level : simd::supported_levels()) {
    for (const float y : recipe_matmul(*find_linear_recipe("hopper"), x, WeightMatrix(weights, "w"), 1, level)) {
      EXPECT_EQ(std::bit_cast<uint32_t>(y), 0u) << simd::level_name(level);
    }
  }
}

// The largest significands of one sign: a step of 16 nearly fills an integer of 32 bits, and with c it does not fit.
TEST(TensorCoreMatmul, LargestSums_HaveTheBitsOfTheDefinition) {
  for (const float sign : {1.0f, -1.0f}) {
    auto product = std::make_unique<Product>(Shape{3, 32, 256});
    product->weights.set("w", reference::bf16({32, 256}, std::vector<float>(32 * 256, 0x1.fep0f)));
    for (int64_t m = 0; m < 3; ++m) {
      std::vector<float> row(256, sign * 0x1.fep0f);
      for (size_t k = 0; k < 16; ++k) {
        row[k] = sign * std::ldexp(1.0f, static_cast<int>(m) - 4);  // so that c is below the products behind it
      }
      product->x.set(m, row);
    }
    expect_same_bits(*find_linear_recipe("hopper"), product, "largest sums");
  }
}

// Products so small that 2^(F - E) is no number, beside whole zeros and c.
TEST(TensorCoreMatmul, TinyProducts_HaveTheBitsOfTheDefinition) {
  auto product = std::make_unique<Product>(Shape{4, 32, 256});
  std::vector<float> w;
  std::vector<float> x;
  for (int i = 0; i < 32 * 256; ++i) {
    w.push_back(i / 256 % 3 == 0 ? 0.0f : std::ldexp(1.0f + static_cast<float>(i % 7) / 8, -50 - i % 30));
    x.push_back(i % 5 == 0 ? 0.0f : std::ldexp(i % 2 == 0 ? -1.25f : 1.75f, -40 - i % 37));
  }
  product->weights.set("w", reference::bf16({32, 256}, w));
  for (int64_t m = 0; m < 4; ++m) {
    product->x.set(m, std::span(x).subspan(static_cast<size_t>(m) * 256, 256));
  }
  for (const char* name : {"hopper", "ampere"}) {
    expect_same_bits(*find_linear_recipe(name), product, "tiny products");
  }
}

// Whole tiles of every row of x and a tail, in blocks of which some rows take the definition (a NaN code).
TEST(TensorCoreMatmul, SomeRowsWithNan_LeaveTheOthersAlone) {
  const auto product = fp8_product({9, 72, 384}, 7, true);
  expect_same_bits(*find_linear_recipe("hopper"), product, "NaN in some rows");
}

TEST(TensorCoreMatmul, SplitsOfK_HaveTheBitsOfTheDefinition) {
  for (const int num_splits : {2, 3, 7}) {
    for (const bool descending : {false, true}) {
      Recipe recipe = *find_linear_recipe("hopper");
      recipe.chunks = {.num_splits = num_splits, .descending = descending};
      expect_same_bits(recipe, bf16_product(kRagged, 3, true), "split");
    }
  }
}

// Rules that no kernel takes, and ones that it takes at its limits.
TEST(TensorCoreMatmul, StatedArithmetic_HasTheBitsOfTheDefinition) {
  for (const char* unit : {R"("products": 16, "align_bits": 24, "align_rounding": "down", "result_bits": 23)",
                           R"("products": 8, "align_bits": 40, "result_bits": 23, "result_rounding": "nearest_even")",
                           R"("products": 32, "align_bits": 15, "result_bits": 12)",
                           R"("products": 32, "align_bits": 16, "result_bits": 16)",
                           R"("products": 64, "align_bits": 40, "result_bits": 20)",
                           R"("products": 5, "align_bits": 11, "result_bits": 19)"}) {
    const std::string file = std::string(R"({"name": "stated", "units": [{"inputs": ["e4m3fn", "bf16"], )") + unit +
                             R"(}], "promotion": {"every": 64, "form": "add_scales_first"}})";
    const Recipe recipe = parse_arithmetic(file, "test");
    expect_same_bits(recipe, fp8_product(kRagged, 4, true), unit);
    expect_same_bits(recipe, bf16_product(kRagged, 5, true), unit);
  }
}

// What linear_path() rests on: codes of a FNUZ unit give the FN unit's bits, divided by four.
TEST(TensorCoreMatmul, FnuzSteps_AreTheFnSteps_ButForAPowerOfTwo) {
  std::mt19937 random(9);
  const StepRule rule{.num_products = 32, .align_bits = 13, .result_bits = 13};
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> a;
    std::vector<uint32_t> b;
    for (int k = 0; k < 32; ++k) {
      // No minus zero, which is NaN in FNUZ.
      a.push_back(std::max<uint32_t>(1, e4m3(random, round % 5) & 0x7F) | (random() & 0x80));
      b.push_back(std::max<uint32_t>(1, e4m3(random, round / 5 % 5) & 0x7F) | (random() & 0x80));
    }
    const auto fn = std::bit_cast<float>(tc_step(rule, Format::kE4m3, a, b, 0));
    const auto fnuz = std::bit_cast<float>(tc_step(rule, Format::kE4m3Fnuz, a, b, 0));
    ASSERT_EQ(fnuz, fn / 4) << round;
  }
}

TEST(TensorCoreMatmul, Ampere_RefusesFp8) {
  const auto product = fp8_product(kWhole, 1, false);
  const WeightMatrix weight(product->weights, "w");
  EXPECT_THROW(recipe_matmul(*find_linear_recipe("ampere"), product->x, weight, 1), model::InputError);
}

}  // namespace
}  // namespace reference::tensor_core
