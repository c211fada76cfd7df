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
    GTEST_SKIP() << line;  // NCCL is not installed: there are no functions to look for
  }
}

// Values of a rank in memory of its GPU.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<float>& values) : count_(values.size()) {
    check(cudaMalloc(&data_, count_ * sizeof(float)));
    check(cudaMemcpy(data_, values.data(), count_ * sizeof(float), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  // Waits for the stream, which is the default one.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> values(count_);
    check(cudaMemcpy(values.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  static void check(cudaError_t status) {
    if (status != cudaSuccess) {
      throw CommError(cudaGetErrorString(status));
    }
  }

  size_t count_;
  void* data_ = nullptr;
};

// Small integers, so that the order of sums does not matter.
void do_every_collective(Communicator& group) {
  const int n = group.size();
  const auto rank = static_cast<float>(group.rank());
  const float sum_of_ranks = static_cast<float>(n * (n - 1)) / 2;
  std::vector<float> of_each_rank;
  for (int other = 0; other < n; ++other) {
    of_each_rank.push_back(static_cast<float>(other));
  }
  const auto each = static_cast<size_t>(n);

  const OnDevice one({rank});
  const OnDevice sum({-1});
  group.all_reduce(one.data(), sum.data(), 1, Element::kF32);
  EXPECT_EQ(sum.values(), std::vector<float>{sum_of_ranks});

  const OnDevice all(std::vector<float>(each, -1));
  group.all_gather(one.data(), all.data(), 1, Element::kF32);
  EXPECT_EQ(all.values(), of_each_rank);

  const OnDevice parts(of_each_rank);
  group.reduce_scatter(parts.data(), sum.data(), 1, Element::kF32);
  EXPECT_EQ(sum.values(), std::vector<float>{rank * static_cast<float>(n)});

  const OnDevice mine(std::vector<float>(each, rank));
  const std::vector<int64_t> one_each(each, 1);
  group.all_to_all(mine.data(), one_each, all.data(), one_each, Element::kF32);
  EXPECT_EQ(all.values(), of_each_rank);

  group.broadcast(one.data(), 1, Element::kF32, n - 1);
  EXPECT_EQ(one.values(), std::vector<float>{static_cast<float>(n - 1)});

  const OnDevice passed_on({group.rank() == 0 ? 5.0f : -1.0f});
  if (group.rank() > 0) {
    group.receive(passed_on.data(), 1, Element::kF32, group.rank() - 1);
  }
  if (group.rank() + 1 < n) {
    group.send(passed_on.data(), 1, Element::kF32, group.rank() + 1);
  }
  group.barrier();
  EXPECT_EQ(passed_on.values(), std::vector<float>{5});
}

TEST(Nccl, ARankOnEachGpu_DoesEveryCollective) {
  if (num_gpus() == 0) {
    GTEST_SKIP() << "there is no GPU";  // tools/device-check runs this where there is one
  }
  run_thread_ranks(num_gpus(), {}, [](Communicator& ranks) {
    const auto world = make_nccl(ranks, {.device = ranks.rank()}, {.timeout_s = 30});
    do_every_collective(*world);
    do_every_collective(*world->split(world->rank() % 2, world->rank(), "half"));
  });
}

}  // namespace

}  // namespace gpu::comm
