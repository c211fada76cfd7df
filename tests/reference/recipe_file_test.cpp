// Arithmetic files: what is read, and one clear line for what is not.
#include "reference/tensor_core/recipe_file.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"

namespace reference::tensor_core {
namespace {

constexpr const char* kExample = R"({
  "name": "example",
  "units": [
    {"inputs": ["e4m3fnuz"], "products": 16, "align_bits": 30, "align_rounding": "down",
     "result_bits": 23, "result_rounding": "nearest_even"},
    {"inputs": ["bf16", "fp16"], "products": 4, "align_bits": 24, "result_bits": 23, "floor_below": 6}
  ],
  "promotion": {"every": 64, "form": "add_activation_first"},
  "bf16_chain": {"splits": 2, "order": "descending"}
})";

std::string message_of(const std::string& text) {
  try {
    parse_arithmetic(text, "a.json");
  } catch (const model::InputError& error) {
    return error.what();
  }
  return "no error";
}

std::string with(const std::string& from, const std::string& to) {
  std::string text = kExample;
  return text.replace(text.find(from), from.size(), to);
}

TEST(RecipeFile, Example_IsReadWhole) {
  const Recipe recipe = parse_arithmetic(kExample, "a.json");
  EXPECT_EQ(recipe.name, "example");
  const Path& fp8 = *paths_for(recipe, Format::kE4m3Fnuz)[0];
  EXPECT_EQ(fp8.step.num_products, 16);
  EXPECT_EQ(fp8.step.align_bits, 30);
  EXPECT_EQ(fp8.step.result_bits, 23);
  EXPECT_EQ(fp8.step.align, Rounding::kDown);
  EXPECT_EQ(fp8.step.result, Rounding::kNearestEven);
  const Path& fp16 = *paths_for(recipe, Format::kFp16)[0];
  EXPECT_EQ(fp16.step, (StepRule{.num_products = 4, .align_bits = 24, .result_bits = 23, .floor_below = 6}));
  EXPECT_EQ(recipe.promotion, (Promotion{.every = 64, .form = Promotion::Form::kSeparateActivationFirst}));
  EXPECT_EQ(recipe.chunks, (Chunks{.num_splits = 2, .descending = true}));
}

TEST(RecipeFile, Quantiser_IsReadWhole_AndChecked) {
  EXPECT_FALSE(parse_arithmetic(kExample, "a.json").quantiser);
  const std::string stated =
      R"("quantiser": {"format": "ue8m0", "scale": "amax_divided", "code": "times_reciprocal"}, "promotion")";
  const auto quantiser = parse_arithmetic(with("\"promotion\"", stated), "a.json").quantiser;
  ASSERT_TRUE(quantiser);
  EXPECT_EQ(
      *quantiser,
      (Quantiser{.power_of_two = true, .scale = Quantiser::Scale::kDivide, .code = Quantiser::Code::kTimesReciprocal}));
  EXPECT_EQ(message_of(with("\"promotion\"", R"("quantiser": {"code": "rounded"}, "promotion")")),
            "a.json: quantiser: code 'rounded': expected divided_by_scale, times_reciprocal, times_max_over_amax");
}

// The code of minus zero is NaN, and every number is half of what E4M3FN's code means.
TEST(RecipeFile, Fnuz_HasItsOwnCodes) {
  const Recipe recipe = parse_arithmetic(kExample, "a.json");
  const Path& path = *paths_for(recipe, Format::kE4m3Fnuz)[0];
  const auto dot = [&](uint32_t a, uint32_t b) {
    return path_dot(path, Format::kE4m3Fnuz, std::vector{a}, std::vector{b}, 0);
  };
  EXPECT_EQ(dot(0x38, 0x40), 0x3F000000u);  // 0.5 * 1
  EXPECT_EQ(dot(0x7F, 0x40), 0x43700000u);  // 240
  EXPECT_EQ(dot(0x80, 0x40), kNanFp32);
}

TEST(RecipeFile, WrongFiles_GetOneLineThatNamesThePlace) {
  EXPECT_EQ(message_of(with("\"products\": 16", "\"products\": 65")),
            "a.json: units[0]: products has to be an integer from 1 to 64");
  EXPECT_EQ(message_of(with("\"align_bits\": 30", "\"align_bits\": 30.5")),
            "a.json: units[0]: align_bits has to be an integer from 1 to 48");
  EXPECT_EQ(message_of(with("\"down\"", "\"up\"")),
            "a.json: units[0]: align_rounding 'up': expected toward_zero, down, nearest_even");
  EXPECT_EQ(message_of(with("\"every\": 64", "\"every\": 48")),
            "a.json: promotion: every has to divide 128, which one scale covers");
  EXPECT_EQ(message_of(with("[\"bf16\", \"fp16\"]", "[\"e4m3fnuz\"]")),
            "a.json: units[1]: e4m3fnuz has a unit already");
  EXPECT_EQ(message_of(with("\"name\": \"example\",", "")), "a.json: name is missing");
  EXPECT_EQ(message_of(with("\"splits\"", "\"split\"")),
            "a.json: bf16_chain: unknown key 'split'; known: order, splits");
  EXPECT_EQ(message_of("[]"), "a.json: expected an object");
  EXPECT_EQ(message_of(R"({"name": "x", "units": []})"), "a.json: units has to be a list of at least one unit");
  EXPECT_THROW(read_arithmetic("no such file.json"), model::InputError);
  EXPECT_THROW(recipe_of("volta"), model::InputError);
}

}  // namespace
}  // namespace reference::tensor_core
