// An access outside ends the block with a fault that says where the address lies, in kernels that are not compiled for checking too.
#include <gtest/gtest.h>

#include "tests/gpu/harness.hpp"
#include "tests/gpu/planted_kernels.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

using emulation::FaultKind;

struct Outside {
  const char* name;
  void (*kernel)(PlantedArguments);
  FaultKind kind;
  const char* where;
};

class AccessFaults : public testing::TestWithParam<Outside> {};

TEST_P(AccessFaults, SayWhereTheAddressLies_AndLeaveTheDeviceUsable) {
  Device device;
  const auto stream = device.create_stream();
  const Buffer<float> in(
      device, stream, std::vector<float>(1024, 1.0f), "in");  // a whole page, so that its end is seen
  const Buffer<float> out(device, stream, 1024, "out");
  const auto run = [&](bool faulty) {
    launch(stream,
           {.name = GetParam().name, .grid = {1}, .block = {256}, .shared_bytes = 1024},
           GetParam().kernel,
           PlantedArguments{.faulty = faulty, .in = in.data() + 768, .out = out.data() + 768});
    device.synchronize();
  };
  try {
    run(true);
    FAIL() << "not found";
  } catch (const emulation::Fault& fault) {
    EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(GetParam().kind)) << fault.what();
    EXPECT_NE(std::string(fault.what()).find(GetParam().where), std::string::npos) << fault.what();
    EXPECT_NE(std::string(fault.what()).find(GetParam().name), std::string::npos) << fault.what();
  }
  EXPECT_NO_THROW(run(false));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    AccessFaults,
    testing::Values(
        Outside{"read_behind_the_end", read_behind_the_end, FaultKind::kOutOfBounds, "0 bytes behind `in`"},
        Outside{"write_behind_the_end", write_behind_the_end, FaultKind::kOutOfBounds, "0 bytes behind `out`"},
        Outside{"index_before_shared_memory",
                index_before_shared_memory,
                FaultKind::kSharedOverrun,
                "byte -4 of shared memory, but the launch asked for 1024 bytes"},
        Outside{"null_pointer", null_pointer, FaultKind::kOutOfBounds, "which no memory of the device has"}),
    [](const auto& outside) { return std::string(outside.param.name); });

}  // namespace
}  // namespace gpu::DSV3_BACKEND
