// What kernel tests share: device buffers, random numbers, all orders, and a file compiled twice, plain and checked.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/portable/kernel.hpp"
#include "model/estimate.hpp"
#include "model/tensor_view.hpp"
#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/numerics/round.hpp"
#include "reference/quantize.hpp"

namespace gpu::DSV3_BACKEND {

using emulation::Device;
using emulation::Options;
using emulation::OrderKind;

inline const std::vector<emulation::Order> kOrders = {{OrderKind::kForward, 0},
                                                      {OrderKind::kReverse, 0},
                                                      {OrderKind::kRandom, 1},
                                                      {OrderKind::kRandom, 2},
                                                      {OrderKind::kRandom, 3}};

inline std::string order_name(const emulation::Order& order) {
  const char* const names[] = {"forward", "reverse", "random"};
  return fmt::format("{}:{}", names[static_cast<int>(order.kind)], order.seed);
}

// Device memory for `count` elements, holding NaN until something is written.
template <typename T>
class Buffer {
 public:
  Buffer(Device& device, Stream stream, int64_t count, const char* name)
      : device_(device),
        stream_(stream),
        count_(count),
        data_(reinterpret_cast<T*>(device.allocate(count * static_cast<int64_t>(sizeof(T)), name))) {}
  Buffer(Device& device, Stream stream, const std::vector<T>& values, const char* name)
      : Buffer(device, stream, static_cast<int64_t>(values.size()), name) {
    upload(values);
  }
  ~Buffer() { device_.release(reinterpret_cast<std::byte*>(data_)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] T* data() const { return data_; }
  void upload(const std::vector<T>& values) {
    device_.enqueue_copy(stream_, data_, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    device_.synchronize(stream_);
  }
  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(static_cast<size_t>(count_));
    device_.enqueue_copy(stream_, values.data(), data_, count_ * static_cast<int64_t>(sizeof(T)));
    device_.synchronize(stream_);
    return values;
  }

 private:
  Device& device_;
  Stream stream_;
  int64_t count_;
  T* data_;
};

// N(0, sigma) as BF16 codes, by the reference's rounding.
inline std::vector<half16> random_bf16(int64_t count, float sigma, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<half16> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values.push_back({reference::encode_bf16(normal(engine))});
  }
  return values;
}

// Element `index` of an estimate, rounded to BF16 somewhere in its interval.
inline testing::AssertionResult is_inside(const model::Estimate& expected, size_t index, half16 got) {
  const float value = model::decode_bf16(got.bits);
  const double middle = expected.value[index];
  const double error = expected.error[index];
  if (value >= reference::round_to_bf16(static_cast<float>(middle - error)) &&
      value <= reference::round_to_bf16(static_cast<float>(middle + error))) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "element " << index << ": " << value << ", expected " << middle << " +- "
                                     << error;
}
inline testing::AssertionResult is_inside(const model::Estimate& expected, size_t index, float got) {
  const double error = expected.error[index] + std::abs(expected.value[index]) * 0x1p-24;  // stored as FP32
  if (std::abs(got - expected.value[index]) <= error) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "element " << index << ": " << got << ", expected " << expected.value[index]
                                     << " +- " << error;
}

// Rows of activations as the FP8 linear takes them: codes, and scales [ceil(row_len / 128), stride], NaN beyond the rows.
struct QuantizedRows {
  std::vector<fp8_e4m3> codes;
  std::vector<float> scales;
};
inline QuantizedRows quantized(const std::vector<half16>& x, int64_t row_len, int64_t stride) {
  QuantizedRows result;
  const int64_t num_blocks = (row_len + kScaleBlockLen - 1) / kScaleBlockLen;
  result.scales.assign(static_cast<size_t>(num_blocks * stride), std::nanf(""));
  for (int64_t t = 0; t < static_cast<int64_t>(x.size()) / row_len; ++t) {
    std::vector<float> row;
    for (int64_t k = 0; k < row_len; ++k) {
      row.push_back(model::decode_bf16(x[static_cast<size_t>(t * row_len + k)].bits));
    }
    const auto of_row = reference::quantize_row({}, row);
    for (const float code : of_row.codes) {
      result.codes.push_back({reference::encode_f8_e4m3(code)});
    }
    for (size_t b = 0; b < of_row.scales.size(); ++b) {
      result.scales[b * static_cast<size_t>(stride) + static_cast<size_t>(t)] = of_row.scales[b];
    }
  }
  return result;
}

inline model::TensorView view_of(model::Shape shape, const std::vector<half16>& values) {
  std::vector<uint16_t> codes;
  for (const half16 value : values) {
    codes.push_back(value.bits);
  }
  return model::make_tensor(model::DType::kBF16, std::move(shape), std::move(codes));
}

}  // namespace gpu::DSV3_BACKEND
