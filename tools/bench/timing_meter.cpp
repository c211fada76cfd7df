// Times of kernels on a GPU.
#include <algorithm>
#include <random>

#include "model/check.hpp"
#include "model/config.hpp"
#include "simulator/error_summary.hpp"
#include "tools/bench/kernel_bench.hpp"
#include "tools/bench/steady.hpp"
#include "tools/bench/timing.hpp"
#include "tools/device/open.hpp"

namespace tools {
namespace {

// Ordinary numbers in E4M3, BF16 and FP32 alike: every byte has either sign and the high bits of an exponent just below 1.
std::vector<uint8_t> ordinary_bytes(int64_t num_bytes) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(static_cast<size_t>(num_bytes));
  std::ranges::generate(bytes, [&] {
    const auto bits = static_cast<uint8_t>(random());
    return static_cast<uint8_t>(0x30U | (bits & 0x8FU));
  });
  return bytes;
}

class TimingMeter : public KernelMeter {
 public:
  explicit TimingMeter(const SteadyLimits& limits) : limits_(limits) {
    if (const std::string why = why_no_cuda(); !why.empty()) {
      model::throw_input_error("--device cuda: {}; --device emulated counts what the same kernels move", why);
    }
  }

  [[nodiscard]] std::string device_name() const override { return cuda_name(); }
  [[nodiscard]] int64_t vocab_size() const override { return model::built_in_config("deepseek-v3").vocab_size; }
  std::unique_ptr<gpu::Backend> open() override { return open_cuda(); }

  // One block of numbers over and over.
  void fill(gpu::Backend& device, std::byte* memory, int64_t num_bytes) override {
    const auto block_bytes = static_cast<int64_t>(block_.size());
    device.upload(memory, block_.data(), std::min(num_bytes, block_bytes));
    for (int64_t done = block_bytes; done < num_bytes; done += block_bytes) {
      device.copy(memory + done, memory, std::min(num_bytes - done, block_bytes));
    }
  }

  void measure(gpu::Backend& device, const std::function<void()>& launches, KernelRow& row) override {
    const auto times_us =
        repeat_until_steady([&](int repetitions) { return time_on_cuda(device, launches, repetitions); },
                            [] { return now_s(Clock::kWall); },
                            limits_);
    row.times = {.median_us = simulator::quantile(times_us, 0.5),
                 .p10_us = simulator::quantile(times_us, 0.1),
                 .p90_us = simulator::quantile(times_us, 0.9),
                 .noise_frac = median_noise_frac(times_us),
                 .num_repetitions = std::ssize(times_us)};
  }

 private:
  SteadyLimits limits_;
  std::vector<uint8_t> block_ = ordinary_bytes(int64_t{16} << 20);
};

}  // namespace

std::unique_ptr<KernelMeter> make_timing_meter(double noise_frac, double max_seconds) {
  return std::make_unique<TimingMeter>(SteadyLimits{.noise_frac = noise_frac, .max_seconds = max_seconds});
}

}  // namespace tools
