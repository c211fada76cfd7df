// A thread of this process for each GPU, connected by NCCL.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "gpu/comm/nccl.hpp"
#include "model/check.hpp"
#include "tools/bench/link_times.hpp"

namespace tools {
namespace {

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw gpu::comm::CommError(fmt::format("{}: {}", what, cudaGetErrorString(status)));
  }
}

struct FreeDevice {
  void operator()(void* memory) const { cudaFree(memory); }
};

}  // namespace

void run_nccl_ranks(int num_ranks,
                    const std::function<void(const LinkRank&)>& body,
                    const std::function<void(int rank, const std::string& what)>& on_failure) {
  int num_gpus = 0;  // stays so when there is no driver
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus < num_ranks) {
    model::throw_input_error("--comm nccl: {} ranks need as many GPUs, and CUDA shows {}", num_ranks, num_gpus);
  }
  const auto run = [&](gpu::comm::Communicator& ranks) {
    const auto links = gpu::comm::make_nccl(ranks, {.device = ranks.rank()}, {});
    cudaDeviceProp properties = {};
    check_cuda(cudaGetDeviceProperties(&properties, ranks.rank()), "cudaGetDeviceProperties");
    std::vector<std::unique_ptr<void, FreeDevice>> memory;
    const auto allocate = [&](int64_t num_bytes) {
      void* start = nullptr;
      check_cuda(cudaMalloc(&start, static_cast<size_t>(num_bytes)), "cudaMalloc");
      memory.emplace_back(start);
      check_cuda(cudaMemset(start, 0, static_cast<size_t>(num_bytes)), "cudaMemset");
      return static_cast<std::byte*>(start);
    };
    body({.host = ranks,
          .links = *links,
          .allocate = allocate,
          .finish = [] { check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); },
          .gpu = properties.name});
  };
  gpu::comm::run_thread_ranks(num_ranks, {}, run, on_failure);
}

}  // namespace tools
