// One row of the table of kernels: memory for its launches, the least that they have to move, and what they moved.
#pragma once

#include <string>
#include <vector>

#include "gpu/emulation/device.hpp"
#include "model/op_list.hpp"
#include "tools/bench/kernel_bench.hpp"

namespace tools {

// Device memory for the launches of one row, and what they moved once it is finished.
class CountedLaunch {
 public:
  CountedLaunch()
      : device_({.memory_bytes = int64_t{64} << 30, .finds_races = false}), stream_(device_.create_stream()) {}

  [[nodiscard]] gpu::emulation::Stream stream() const { return stream_; }
  // A tensor that the launch reads or writes once.
  template <typename T>
  T* tensor(int64_t count) {
    minimum_ += count * static_cast<int64_t>(sizeof(T));
    return workspace<T>(count);
  }
  template <typename T>
  T* workspace(int64_t count) {
    return reinterpret_cast<T*>(device_.allocate(count * static_cast<int64_t>(sizeof(T)), "bench"));
  }
  template <typename T>
  T* with(const std::vector<T>& values, T* at) {
    const auto num_bytes = static_cast<int64_t>(values.size() * sizeof(T));
    device_.enqueue_copy(stream_, at, values.data(), num_bytes);
    device_.synchronize(stream_);
    return at;
  }
  template <typename T>
  T* numbers(const std::vector<T>& values) {
    return with(values, tensor<T>(static_cast<int64_t>(values.size())));
  }
  int32_t* zeros(int64_t count) {
    return with(std::vector<int32_t>(static_cast<size_t>(count), 0), workspace<int32_t>(count));
  }

  // Launches so far were preparation.
  void forget_counts() {
    device_.synchronize();
    device_.reset_counters();
  }
  KernelRow finish(const std::string& op, const std::string& shape, const model::Op& cost, double bar) {
    device_.synchronize();
    KernelRow row{.op = op,
                  .shape = shape,
                  .flops = cost.flops,
                  .minimum_bytes = minimum_ + cost.weight_bytes + cost.kv_bytes,
                  .bar = bar};
    for (const auto& [kernel, counters] : device_.counters()) {
      row.sector_bytes += 32 * (counters.sectors_read + counters.sectors_written);
      row.issued_bytes += counters.bytes_loaded + counters.bytes_stored;
    }
    return row;
  }

 private:
  gpu::emulation::Device device_;
  gpu::emulation::Stream stream_;
  int64_t minimum_ = 0;
};

}  // namespace tools
