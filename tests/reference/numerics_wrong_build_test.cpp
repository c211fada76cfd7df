// Built together with environment.cpp, both on purpose with flags that change bits (see CMakeLists.txt): the self-test must object.
#include <gtest/gtest.h>

#include "model/check.hpp"
#include "reference/numerics/environment.hpp"

namespace reference {
namespace {

TEST(FloatEnvironment, WrongBuildIsRefused) {
  EXPECT_THROW(check_float_environment(), model::CheckError);
}

}  // namespace
}  // namespace reference
