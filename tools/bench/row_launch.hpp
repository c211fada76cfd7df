// One row of the table of kernels: memory for its launches, and the least that they have to move.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/engine/backend.hpp"
#include "tools/bench/kernel_bench.hpp"

namespace tools {

class RowLaunch {
 public:
  RowLaunch(KernelMeter& meter, KernelRow row) : meter_(meter), row_(std::move(row)), device_(meter.open()) {}

  [[nodiscard]] gpu::Backend& device() { return *device_; }

  // What the launches read or write once, beside what memory is taken for.
  template <typename T>
  void moves(int64_t count) {
    row_.activation_bytes += count * static_cast<int64_t>(sizeof(T));
  }
  // A tensor that the launches read or write once.
  template <typename T>
  T* tensor(int64_t count) {
    moves<T>(count);
    return workspace<T>(count);
  }
  // What the op list counts (weights, keys), or what nobody should have to move.
  template <typename T>
  T* workspace(int64_t count) {
    const int64_t num_bytes = count * static_cast<int64_t>(sizeof(T));
    std::byte* const memory = device_->allocate(num_bytes, "bench");
    meter_.fill(*device_, memory, num_bytes);
    return reinterpret_cast<T*>(memory);
  }
  template <typename T>
  T* with(const std::vector<T>& values, T* at) {
    device_->upload(at, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
    device_->synchronize();
    return at;
  }
  template <typename T>
  T* numbers(const std::vector<T>& values) {
    return with(values, tensor<T>(static_cast<int64_t>(values.size())));
  }
  int32_t* zeros(int64_t count) {
    return with(std::vector<int32_t>(static_cast<size_t>(count), 0), workspace<int32_t>(count));
  }

  KernelRow measure(const std::function<void()>& launches) {
    device_->synchronize();
    meter_.measure(*device_, launches, row_);
    return std::move(row_);
  }

 private:
  KernelMeter& meter_;
  KernelRow row_;
  std::unique_ptr<gpu::Backend> device_;
};

}  // namespace tools
