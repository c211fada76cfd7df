#include "tools/device_check/cases.cuh"

namespace tools {
namespace {

// Memory is given back when the program ends.
class CudaMachine {
 public:
  [[nodiscard]] gpu::cuda::Stream stream() const { return {}; }
  void* allocate(int64_t num_bytes) {
    void* start = nullptr;
    gpu::cuda::check_call(cudaMalloc(&start, static_cast<size_t>(num_bytes)), "cudaMalloc");
    gpu::cuda::check_call(cudaMemset(start, 0xFF, static_cast<size_t>(num_bytes)), "cudaMemset");
    return start;
  }
  void* upload(const void* values, int64_t num_bytes) {
    void* const to = allocate(num_bytes);
    gpu::cuda::check_call(cudaMemcpy(to, values, static_cast<size_t>(num_bytes), cudaMemcpyHostToDevice), "cudaMemcpy");
    return to;
  }
  std::vector<std::byte> download(const void* from, int64_t num_bytes) {
    std::vector<std::byte> bytes(static_cast<size_t>(num_bytes));
    gpu::cuda::check_call(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gpu::cuda::check_call(cudaMemcpy(bytes.data(), from, static_cast<size_t>(num_bytes), cudaMemcpyDeviceToHost),
                          "cudaMemcpy");
    return bytes;
  }
};

}  // namespace

std::vector<CaseResult> run_cases_on_device() {
  CudaMachine machine;
  return gpu::cuda::DeviceCases<CudaMachine>(machine).run();
}

std::string device_name() {
  cudaDeviceProp properties = {};
  gpu::cuda::check_call(cudaGetDeviceProperties(&properties, 0), "no CUDA device");
  return properties.name;
}

}  // namespace tools
