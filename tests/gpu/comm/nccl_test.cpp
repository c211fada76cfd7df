// NCCL as far as one GPU goes; without one, what is said then.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/comm/nccl.hpp"
#include "gpu/comm/nccl_library.hpp"

namespace gpu::comm {

namespace {

int num_gpus() {
  int num_devices = 0;  // stays so when there is no driver
  return cudaGetDeviceCount(&num_devices) == cudaSuccess ? num_devices : 0;
}

TEST(Nccl, WithoutAGpu_SaysSoInOneLine) {
  const auto self = make_self();
  const int device = num_gpus();  // one more than there are
  try {
    make_nccl(*self, {.device = device}, {});
    FAIL() << "no error";
  } catch (const CommError& error) {
    const std::string line = error.what();
    EXPECT_NE(line.find(device == 0 ? "cudaGetDeviceCount: " : "there is no GPU"), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

TEST(Nccl, TheLibrary_HasEveryFunctionThatIsUsed) {
  try {
    EXPECT_STREQ(nccl_library().get_error_string(ncclSuccess), "no error");
  } catch (const CommError& error) {
    const std::string line = error.what();
    if (line.find("NCCL cannot be loaded: libnccl.so.2") == std::string::npos) {
      throw;
    }
    GTEST_SKIP() << line;
  }
}

TEST(Nccl, OneRank_GetsBackWhatItSends) {
  if (num_gpus() == 0) {
    GTEST_SKIP() << "there is no GPU";
  }
  const auto self = make_self();
  const auto nccl = make_nccl(*self, {}, {.timeout_s = 30});
  const auto group = nccl->split(0, 0, "part");
  const std::vector<float> values = {1, 2, 3};
  std::vector<float> result(3);
  void* on_device = nullptr;
  ASSERT_EQ(cudaMalloc(&on_device, 3 * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(on_device, values.data(), 3 * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
  for (auto* communicator : {nccl.get(), group.get()}) {
    communicator->all_reduce(on_device, on_device, 3, Element::kF32);
    communicator->broadcast(on_device, 3, Element::kF32, 0);
    communicator->barrier();
  }
  ASSERT_EQ(cudaMemcpy(result.data(), on_device, 3 * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(result, values);
  cudaFree(on_device);
}

}  // namespace

}  // namespace gpu::comm
