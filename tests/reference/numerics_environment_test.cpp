#include "reference/numerics/environment.hpp"

#include <gtest/gtest.h>

#include <cfenv>

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "model/check.hpp"

namespace reference {
namespace {

TEST(FloatEnvironment, AsBuiltAndStartedIsAccepted) {
  EXPECT_NO_THROW(check_float_environment());
}

class DirectedRounding : public testing::TestWithParam<int> {};

TEST_P(DirectedRounding, IsRefused) {
  ASSERT_EQ(std::fesetround(GetParam()), 0);
  EXPECT_THROW(check_float_environment(), model::CheckError);
  std::fesetround(FE_TONEAREST);
}

INSTANTIATE_TEST_SUITE_P(FloatEnvironment, DirectedRounding, testing::Values(FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO));

#ifdef __SSE2__
class FlushedSubnormals : public testing::TestWithParam<unsigned> {};

TEST_P(FlushedSubnormals, AreRefused) {
  const unsigned control = _mm_getcsr();
  _mm_setcsr(control | GetParam());
  EXPECT_THROW(check_float_environment(), model::CheckError);
  _mm_setcsr(control);
}

// Bits of MXCSR: results flushed to zero (FTZ), operands taken as zero (DAZ).
INSTANTIATE_TEST_SUITE_P(FloatEnvironment, FlushedSubnormals, testing::Values(0x8000u, 0x0040u));
#endif

}  // namespace
}  // namespace reference
