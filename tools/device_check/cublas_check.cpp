#include "tools/device_check/cublas_check.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include "gpu/portable/require.hpp"
#include "model/dtype.hpp"

namespace tools {
namespace {

constexpr int64_t kBlock = 128;

// q_b of DeepSeek-V3 with N cut, and a last tile of tokens that is not full.
ScaledLinear make_linear() {
  ScaledLinear linear{.num_tokens = 72, .out_dim = 256, .in_dim = 1536};
  std::mt19937 random(2);
  const auto fill_codes = [&](std::vector<uint8_t>& codes, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t bits = random();
      codes.push_back(static_cast<uint8_t>((bits & 0x80U) | (bits >> 8) % 0x7F));
    }
  };
  const auto fill_scales = [&](std::vector<float>& scales, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      scales.push_back(1e-3f + static_cast<float>(random() >> 8) * 0x1p-34f);
    }
  };
  fill_codes(linear.x, linear.num_tokens * linear.in_dim);
  fill_scales(linear.x_scale, linear.in_dim / kBlock * linear.num_tokens);
  fill_codes(linear.weight, linear.out_dim * linear.in_dim);
  fill_scales(linear.weight_scale, linear.out_dim / kBlock * (linear.in_dim / kBlock));
  return linear;
}

// The largest |y - exact| as a part of its bound. Bound: a tensor core's step aligns 32 products and the sum so far to the largest of them
// and cuts off behind 13 bits, so the four steps of a block are off by less than 4 * 33 * 2^-13 of the sum of its products' magnitudes;
// the sum of blocks in FP32 adds 2^-23 of a magnitude for each block, and BF16 half a step, 2^-9, of the result.
double largest_use_of_bound(const ScaledLinear& linear, const std::vector<uint16_t>& y) {
  double largest = 0;
  for (int64_t token = 0; token < linear.num_tokens; ++token) {
    for (int64_t row = 0; row < linear.out_dim; ++row) {
      double exact = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < linear.in_dim; ++k) {
        const int64_t block = k / kBlock;
        const double scale = double{linear.x_scale[static_cast<size_t>(block * linear.num_tokens + token)]} *
                             linear.weight_scale[static_cast<size_t>(row / kBlock * (linear.in_dim / kBlock) + block)];
        const double product = scale * model::decode_f8_e4m3(linear.x[static_cast<size_t>(token * linear.in_dim + k)]) *
                               model::decode_f8_e4m3(linear.weight[static_cast<size_t>(row * linear.in_dim + k)]);
        exact += product;
        magnitude += std::abs(product);
      }
      const double num_blocks = static_cast<double>(linear.in_dim) / kBlock;
      const double bound = (4 * 33 * 0x1p-13 + num_blocks * 0x1p-23) * magnitude + 0x1p-9 * std::abs(exact);
      const double got = model::decode_bf16(y[static_cast<size_t>(token * linear.out_dim + row)]);
      const double use = std::abs(got - exact) / bound;
      largest = std::isnan(use) ? use : std::max(largest, use);
      if (std::isnan(largest)) {
        return largest;
      }
    }
  }
  return largest;
}

}  // namespace

nlohmann::ordered_json check_cublas() {
  const ScaledLinear linear = make_linear();
  try {
    const DeviceLinears got = run_linears_on_device(linear);
    const double cublas_use = largest_use_of_bound(linear, got.by_cublas);
    const double kernel_use = largest_use_of_bound(linear, got.by_kernel);
    return {{"version", got.cublas_version},
            {"largest_use_of_bound", cublas_use},
            {"largest_use_of_bound_fp8_linear_sm90", kernel_use},
            {"passes", cublas_use <= 1 && kernel_use <= 1}};
  } catch (const gpu::DeviceError& error) {
    return {{"missing", error.what()}};
  }
}

}  // namespace tools
