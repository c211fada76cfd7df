// What kernel tests share: device buffers, random numbers, all orders, and a file compiled twice, plain and checked.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "gpu/portable/kernel.hpp"
#include "model/tensor_view.hpp"
#include "reference/numerics/bf16.hpp"

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
inline std::vector<bf16> random_bf16(int64_t count, float sigma, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, sigma);
  std::vector<bf16> values;
  values.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values.push_back({reference::encode_bf16(normal(engine))});
  }
  return values;
}

inline model::TensorView view_of(model::Shape shape, const std::vector<bf16>& values) {
  std::vector<uint16_t> codes;
  for (const bf16 value : values) {
    codes.push_back(value.bits);
  }
  return model::make_tensor(model::DType::kBF16, std::move(shape), std::move(codes));
}

}  // namespace gpu::DSV3_BACKEND
