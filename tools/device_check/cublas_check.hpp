// cuBLASLt's FP8 linear with block scales, and ours, on the device, against the exact product.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tools {

struct ScaledLinear {
  int64_t num_tokens = 0;
  int64_t out_dim = 0;
  int64_t in_dim = 0;
  std::vector<uint8_t> x = {};           // [num_tokens, in_dim] E4M3
  std::vector<float> x_scale = {};       // [in_dim / 128, num_tokens]
  std::vector<uint8_t> weight = {};      // [out_dim, in_dim] E4M3
  std::vector<float> weight_scale = {};  // [out_dim / 128, in_dim / 128]
};

struct DeviceLinears {
  std::string cublas_version;
  std::vector<uint16_t> by_cublas;  // [num_tokens, out_dim] BF16
  std::vector<uint16_t> by_kernel;  // likewise
};
// Throws gpu::DeviceError when the library or its device is missing.
DeviceLinears run_linears_on_device(const ScaledLinear& linear);

// {"missing": why} without the library; else "version", how much of the bound each used at most, and "passes".
nlohmann::ordered_json check_cublas();

}  // namespace tools
