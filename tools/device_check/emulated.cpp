#include "gpu/emulation/device.hpp"
#include "tools/device_check/cases.cuh"

namespace tools {
namespace {

class EmulatedMachine {
 public:
  [[nodiscard]] gpu::emulation::Stream stream() const { return stream_; }
  void* allocate(int64_t num_bytes) { return device_.allocate(num_bytes, "case"); }
  void* upload(const void* values, int64_t num_bytes) {
    void* const to = allocate(num_bytes);
    device_.enqueue_copy(stream_, to, values, num_bytes);
    device_.synchronize();
    return to;
  }
  std::vector<std::byte> download(const void* from, int64_t num_bytes) {
    std::vector<std::byte> bytes(static_cast<size_t>(num_bytes));
    device_.enqueue_copy(stream_, bytes.data(), from, num_bytes);
    device_.synchronize();
    return bytes;
  }

 private:
  gpu::emulation::Device device_{{.accumulation = gpu::emulation::Accumulation::kHopper}};
  gpu::emulation::Stream stream_ = device_.create_stream();
};

}  // namespace

std::vector<CaseResult> run_cases_emulated() {
  EmulatedMachine machine;
  return gpu::emulated::DeviceCases(machine).run();
}

}  // namespace tools
