// CUDA devices, in programs built with nvcc.
#include <unistd.h>

#include <algorithm>
#include <array>

#include "gpu/comm/nccl.hpp"
#include "gpu/engine/cuda_backend.hpp"
#include "model/check.hpp"
#include "tools/device/open.hpp"

namespace tools {
namespace {

// How many ranks of this machine come before this one.
int place_on_machine(gpu::comm::Communicator& world) {
  using Name = std::array<char, 64>;
  Name mine = {};
  gethostname(mine.data(), mine.size() - 1);
  std::vector<Name> all(static_cast<size_t>(world.size()));
  world.all_gather(&mine, all.data(), sizeof(Name), gpu::comm::Element::kByte);
  return static_cast<int>(std::count(all.begin(), all.begin() + world.rank(), mine));
}

}  // namespace

std::string why_no_cuda() {
  return gpu::why_no_cuda_device();
}

std::unique_ptr<gpu::Backend> open_cuda(bool fp16) {
  return fp16 ? gpu::make_cuda_fp16_backend() : gpu::make_cuda_backend();
}

RankDevice open_cuda_rank(gpu::comm::Communicator& world, bool fp16) {
  const int device = place_on_machine(world);
  if (const int num_devices = gpu::num_cuda_devices(); device >= num_devices) {
    model::throw_input_error(
        "--device cuda: each rank needs a GPU; this is rank {} of its machine, and CUDA shows {}", device, num_devices);
  }
  RankDevice opened{.links = nullptr,
                    .backend = fp16 ? gpu::make_cuda_fp16_backend(device) : gpu::make_cuda_backend(device)};
  opened.links = gpu::comm::make_nccl(world, {.device = device, .stream = opened.backend->native_stream()}, {});
  return opened;
}

std::string cuda_name() {
  return gpu::cuda_device_name();
}

std::vector<double> time_on_cuda(gpu::Backend& device, const std::function<void()>& work, int num_repetitions) {
  return gpu::time_on_cuda(device, work, num_repetitions);
}

}  // namespace tools
