// Compiled for checking (docs/gpu.md), so that every access of a kernel is seen.
#include "gpu/engine/emulation_backend.hpp"
#include "tools/bench/kernel_bench.hpp"

namespace tools {
namespace {

class CountingBackend : public gpu::DSV3_BACKEND::EmulationBackend {
 public:
  CountingBackend() : EmulationBackend({.memory_bytes = int64_t{64} << 30, .finds_races = false}) {}

  [[nodiscard]] gpu::emulation::Device& device() const { return *stream().device; }
};

class CountingMeter : public KernelMeter {
 public:
  [[nodiscard]] std::string device_name() const override { return "emulated"; }
  [[nodiscard]] int64_t vocab_size() const override { return 4096; }
  std::unique_ptr<gpu::Backend> open() override { return std::make_unique<CountingBackend>(); }
  void fill(gpu::Backend& /*device*/, std::byte* /*memory*/, int64_t /*num_bytes*/) override {}
  void measure(gpu::Backend& device, const std::function<void()>& launches, KernelRow& row) override {
    gpu::emulation::Device& emulated = static_cast<CountingBackend&>(device).device();
    emulated.reset_counters();
    launches();
    device.synchronize();
    KernelCounts& counts = row.counts.emplace();
    for (const auto& [kernel, counters] : emulated.counters()) {
      counts.sector_bytes += 32 * (counters.sectors_read + counters.sectors_written);
      counts.issued_bytes += counters.bytes_loaded + counters.bytes_stored;
    }
  }
};

}  // namespace

std::unique_ptr<KernelMeter> make_counting_meter() {
  return std::make_unique<CountingMeter>();
}

}  // namespace tools
