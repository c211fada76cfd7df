// The whole measured sets, which lie beside the repository: no mismatch, and a step changed by one is refused.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "reference/tensor_core/linear_recipes.hpp"
#include "reference/tensor_core/recipe_matmul.hpp"
#include "tests/reference/hand_made.hpp"
#include "tests/reference/tensor_core_vectors.hpp"
#include "tests/shared_data.hpp"

namespace reference::tensor_core {
namespace {

class TensorCoreOracle : public testing::TestWithParam<NamedSet> {};

TEST_P(TensorCoreOracle, WholeSet_AgreesAndChangedStepsDoNot) {
  const auto file = shared_data("oracle/tensor-core/" + GetParam().file);
  SKIP_UNLESS_THERE(file);
  const VectorSet set = read_vectors(file->string(), GetParam().format);
  EXPECT_EQ(set.rows.size(), 5000u);
  const Path& path = path_of(GetParam());
  EXPECT_EQ(check_path(set, path).num_mismatches, 0);
  for (const auto& [name, changed] : changed_steps(path)) {
    EXPECT_GT(check_path(set, changed).num_mismatches, 0) << name;
  }
}

// A measured row in the middle of a linear of K = 2 steps. BF16: the first step makes the row's c out of three products, exactly.
float upper_part(float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xFFFF0000);
}

uint32_t bf16_linear_of_row(const Recipe& recipe, const Vector& row) {
  const size_t step_len = row.a.size();
  std::vector<uint16_t> w(2 * step_len, 0);
  std::vector<float> x(2 * step_len, 0);
  float rest = std::bit_cast<float>(row.c);
  for (size_t part = 0; part < 3; ++part) {
    x[part] = upper_part(rest);
    rest -= x[part];
    w[part] = 0x3F80;
  }
  for (size_t k = 0; k < step_len; ++k) {
    x[step_len + k] = std::bit_cast<float>(row.a[k] << 16);
    w[step_len + k] = static_cast<uint16_t>(row.b[k]);
  }
  const auto in_dim = static_cast<int64_t>(x.size());
  HandMadeWeights weights;
  weights.set("w", model::make_tensor(model::DType::kBF16, {1, in_dim}, std::move(w)));
  BlockedRows rows(1, in_dim);
  rows.set(0, x);
  return std::bit_cast<uint32_t>(recipe_matmul(recipe, rows, WeightMatrix(weights, "w"), 1)[0]);
}

TEST(TensorCoreOracleLinear, MeasuredRowsInsideALinear_HaveTheMeasuredBits) {
  for (const auto& [file, recipe] : {std::pair{"h100_bf16_fp32.csv", "hopper"},
                                     std::pair{"a100_bf16_fp32.csv", "ampere"},
                                     std::pair{"ada_bf16_fp32.csv", "ada"}}) {
    const auto path = shared_data(std::string("oracle/tensor-core/") + file);
    SKIP_UNLESS_THERE(path);
    int64_t num_mismatches = 0;
    int64_t num_rows = 0;
    for (const Vector& row : read_vectors(path->string(), Format::kBf16).rows) {
      const float c = std::bit_cast<float>(row.c);
      if (std::abs(c) < 0x1p-80f && c != 0) {
        continue;  // its parts would be below BF16's normal numbers
      }
      ++num_rows;
      num_mismatches += bf16_linear_of_row(*find_linear_recipe(recipe), row) == row.d ? 0 : 1;
    }
    EXPECT_EQ(num_mismatches, 0) << file;
    EXPECT_GT(num_rows, 4900) << file;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, TensorCoreOracle, testing::ValuesIn(kMeasuredSets), set_name);

}  // namespace
}  // namespace reference::tensor_core
