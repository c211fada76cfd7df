// docs/gpu.md shows how to write a kernel and how to run it: its code, taken from there when CMake configures, compiles and runs.
#include <gtest/gtest.h>

#include <vector>

#include "docs/gpu_kernel.inc"
#include "gpu/emulation/device.hpp"

namespace {

TEST(DocsExample, CompilesAndScales) {
#include "docs/gpu_run.inc"
  EXPECT_EQ(host, std::vector<float>(512, 3.0f));
}

}  // namespace
