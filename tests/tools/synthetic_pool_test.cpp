// Fixtures whose matrices are windows of a pool: the same bits however they are asked for, of the sizes that the table has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "tools/synthetic/calibration.hpp"
#include "tools/synthetic/generator.hpp"

namespace tools::synthetic {
namespace {

SyntheticWeights pooled(uint64_t seed) {
  Fixture fixture = *find_fixture("par");
  fixture.zeros.clear();
  fixture.pooled = true;
  return SyntheticWeights(fixture, seed);
}

const SyntheticWeights& weights() {
  static const SyntheticWeights source = pooled(0);
  return source;
}

bool same_bytes(const model::TensorView& left, const model::TensorView& right) {
  return std::ranges::equal(left.bytes, right.bytes);
}

TEST(WeightPool, PartsRowsAndOtherInstances_GiveTheSameBits) {
  const SyntheticWeights again = pooled(0);
  for (const auto& tensor : model::tensor_catalog(weights().config())) {
    const auto whole = again.weight(tensor.name);
    ASSERT_EQ(whole.shape, tensor.shape) << tensor.name;
    ASSERT_EQ(whole.dtype, tensor.dtype) << tensor.name;
    ASSERT_TRUE(same_bytes(whole, weights().weight(tensor.name))) << tensor.name;
    const int64_t size = model::num_elements(tensor.shape);
    const int64_t first = size / 3;
    const auto part = weights().part(tensor.name, first, size / 2);
    const auto width = static_cast<size_t>(model::dtype_bytes(tensor.dtype));
    ASSERT_TRUE(std::ranges::equal(
        part.bytes, whole.bytes.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(size / 2) * width)))
        << tensor.name;
    if (tensor.shape.size() == 2 && tensor.shape[0] > 5) {
      ASSERT_TRUE(same_bytes(weights().rows(tensor.name, 2, 5), model::slice_rows(whole, 2, 5))) << tensor.name;
    }
  }
}

TEST(WeightPool, Seeds_GiveOtherBits) {
  const SyntheticWeights other = pooled(1);
  for (const char* name :
       {"model.layers.1.mlp.experts.3.up_proj.weight", "lm_head.weight", "model.embed_tokens.weight"}) {
    EXPECT_FALSE(same_bytes(weights().weight(name), other.weight(name))) << name;
  }
  EXPECT_NE(weights().hash(), other.hash());
}

TEST(WeightPool, MatricesHaveTheSizesOfTheTable) {
  for (const auto& tensor : model::tensor_catalog(weights().config())) {
    if (tensor.role != model::TensorRole::kBf16Linear || kind_of(tensor) == "embed_tokens") {
      continue;
    }
    double sum = 0;
    const auto values = model::to_double(weights().weight(tensor.name));
    for (const double value : values) {
      sum += value * value;
    }
    const double expected = distribution_of(tensor, 0).std;
    EXPECT_NEAR(std::sqrt(sum / static_cast<double>(values.size())), expected, 0.03 * expected) << tensor.name;
  }
}

// In units of the standard deviation the codes are normal: mean 0, and a 448 about once in a thousand.
TEST(WeightPool, CodesAreNormal_WithTheirLargestInNearlyEveryBlock) {
  const auto& config = weights().config();
  int64_t num_blocks = 0;
  int64_t num_with_largest = 0;
  double sum = 0;
  double count = 0;
  for (const auto& tensor : model::tensor_catalog(config)) {
    if (tensor.dtype != model::DType::kF8E4M3) {
      continue;
    }
    const auto view = weights().weight(tensor.name);
    const auto codes = view.codes<uint8_t>();
    ASSERT_TRUE(std::ranges::none_of(codes, [](uint8_t code) { return (code & 0x7F) == 0x7F; })) << tensor.name;
    const int64_t cols = tensor.shape[1];
    for (int64_t row = 0; row + 128 <= tensor.shape[0]; row += 128) {
      for (int64_t col = 0; col + 128 <= cols; col += 128) {
        bool has_largest = false;
        for (int64_t i = 0; i < 128 * 128; ++i) {
          const uint8_t code = codes[static_cast<size_t>((row + i / 128) * cols + col + i % 128)];
          has_largest = has_largest || (code & 0x7F) == 0x7E;
          sum += model::decode_f8_e4m3(code);
          ++count;
        }
        ++num_blocks;
        num_with_largest += has_largest ? 1 : 0;
      }
    }
  }
  EXPECT_GT(static_cast<double>(num_with_largest), 0.95 * static_cast<double>(num_blocks));
  EXPECT_LT(std::abs(sum / count), 5 * 115 / std::sqrt(count));  // 115: the standard deviation of a code
}

TEST(WeightPool, TensorsAreNoCopiesOfOneAnother_ButTheMtpHeadIs) {
  std::set<std::string> beginnings;
  int64_t num_tensors = 0;
  for (const auto& tensor : model::tensor_catalog(weights().config())) {
    if (tensor.dtype == model::DType::kF8E4M3) {
      const auto codes = weights().part(tensor.name, 0, 64).codes<uint8_t>();
      beginnings.emplace(codes.begin(), codes.end());
      ++num_tensors;
    }
  }
  EXPECT_EQ(static_cast<int64_t>(beginnings.size()), num_tensors);
  EXPECT_TRUE(
      same_bytes(weights().weight("lm_head.weight"), weights().weight("model.layers.3.shared_head.head.weight")));
}

}  // namespace
}  // namespace tools::synthetic
