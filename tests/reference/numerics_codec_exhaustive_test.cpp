// Every float there is through both encoders, against the nearest number of the table of the format.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "tests/reference/nearest_of_table.hpp"

namespace reference {
namespace {

constexpr uint64_t kNumSlices = 16;
constexpr uint64_t kSliceLen = 0x100000000 / kNumSlices;

class EveryFloat : public testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Slice, EveryFloat, testing::Range(uint64_t{0}, kNumSlices));

// The floats of a slice, NaN included.
template <typename IsRight>
void expect_all(uint64_t slice, IsRight is_right) {
  int64_t num_wrong = 0;
  float first_wrong = 0.0f;
  for (uint64_t bits = slice * kSliceLen; bits < (slice + 1) * kSliceLen; ++bits) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!is_right(value)) {
      first_wrong = num_wrong == 0 ? value : first_wrong;
      ++num_wrong;
    }
  }
  EXPECT_EQ(num_wrong, 0) << "first: " << std::hexfloat << first_wrong;
}

TEST_P(EveryFloat, BecomesTheNearestF8E4M3) {
  const NearestOfTable nearest = nearest_f8_e4m3();
  expect_all(GetParam(), [&nearest](float value) {
    const int64_t sign = std::signbit(value) ? 0x80 : 0;
    const int64_t expected = std::isnan(value) ? 0x7F : sign + nearest.code_of(std::abs(value));
    return encode_f8_e4m3(value) == expected;
  });
}

TEST_P(EveryFloat, BecomesTheNearestBf16) {
  const NearestOfTable nearest = nearest_bf16();
  expect_all(GetParam(), [&nearest](float value) {
    if (std::isnan(value)) {
      return std::isnan(round_to_bf16(value));
    }
    const int64_t sign = std::signbit(value) ? 0x8000 : 0;
    return encode_bf16(value) == sign + nearest.code_of(std::abs(value));
  });
}

}  // namespace
}  // namespace reference
