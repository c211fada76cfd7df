#include <cstring>

#include "gpu/kernels/cublas_linear.cuh"
#include "tools/device_check/cases.cuh"
#include "tools/device_check/cublas_check.hpp"

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

DeviceLinears run_linears_on_device(const ScaledLinear& linear) {
  const gpu::cuda::CublasLinear cublas;
  CudaMachine machine;
  const auto given = [&](const auto& values) {
    return machine.upload(values.data(), static_cast<int64_t>(values.size() * sizeof(values[0])));
  };
  const int64_t num_bytes = linear.num_tokens * linear.out_dim * static_cast<int64_t>(sizeof(gpu::half16));
  gpu::Fp8LinearSm90Arguments arguments{.x = static_cast<const gpu::fp8_e4m3*>(given(linear.x)),
                                        .x_scale = static_cast<const float*>(given(linear.x_scale)),
                                        .weight = static_cast<const gpu::fp8_e4m3*>(given(linear.weight)),
                                        .weight_scale = static_cast<const float*>(given(linear.weight_scale)),
                                        .num_tokens = linear.num_tokens,
                                        .x_scale_stride = linear.num_tokens,
                                        .out_dim = linear.out_dim,
                                        .in_dim = linear.in_dim};
  const auto result_of = [&](const auto& run) {
    arguments.y = static_cast<gpu::half16*>(machine.allocate(num_bytes));
    run();
    const auto bytes = machine.download(arguments.y, num_bytes);
    std::vector<uint16_t> values(bytes.size() / sizeof(uint16_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  return {cublas.version(), result_of([&] { cublas.run(machine.stream(), arguments); }), result_of([&] {
            gpu::cuda::fp8_linear_sm90(machine.stream(), arguments);
          })};
}

std::string device_name() {
  cudaDeviceProp properties = {};
  gpu::cuda::check_call(cudaGetDeviceProperties(&properties, 0), "no CUDA device");
  return properties.name;
}

}  // namespace tools
