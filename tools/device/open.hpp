// The devices that --device names, and how an emulated one behaves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/engine/backend.hpp"

namespace tools {

struct DeviceFlags {
  std::string device;             // emulated, cuda
  std::string order = "forward";  // of an emulated device: forward, reverse, random:SEED
  bool races = false;             // an emulated device checks every access
  bool fp16 = false;              // its kernels compute in FP16, in place of BF16
};

// The emulated devices of ranks that are threads of one process; null: a device that is alone.
using Peers = std::shared_ptr<gpu::emulation::PeerGroup>;
// Throws InputError for an order or a device that is not there, or that has no such kernels; DeviceError with CUDA's words.
std::unique_ptr<gpu::Backend> open_device(const DeviceFlags& flags, int num_threads, const Peers& peers = nullptr);
// How the flags want an emulated device to behave. Throws InputError for an unknown order.
gpu::emulation::Options emulation_options(const DeviceFlags& flags, int num_threads, const Peers& peers = nullptr);
// A rank's device and how its tensors get to those of other ranks.
struct RankDevice {
  std::unique_ptr<gpu::comm::Communicator> links;  // of GPUs, over NCCL; null: the hosts exchange them
  std::unique_ptr<gpu::Backend> backend;
};
// For one rank of `world`, which must outlive it. `peers`: null for emulated devices in processes of their own. GPUs: one a rank, in the
// order of the ranks of a machine. Collective; throws what open_device() does, and CommError.
RankDevice open_rank_device(const DeviceFlags& flags, gpu::comm::Communicator& world, const Peers& peers);
// Whether --kv asks for the latent cache in FP8; else it is in the kernels' 16-bit format, which `kv` may name or leave open. Throws
// InputError when it names the other one.
bool is_fp8_cache(const std::string& kv, bool fp16);
// Why there is no GPU that this program can use; empty: there is one. open_cuda.cpp, or no_cuda.cpp in a program built without nvcc.
std::string why_no_cuda();
std::unique_ptr<gpu::Backend> open_cuda(bool fp16 = false);
RankDevice open_cuda_rank(gpu::comm::Communicator& world, bool fp16);
// Throws InputError when there is none.
void require_cuda();
// As CUDA names the device that open_cuda() opens.
std::string cuda_name();
// Microseconds of `work`'s launches on a device of open_cuda(), each from a cold L2 (gpu/engine/cuda_backend.hpp).
std::vector<double> time_on_cuda(gpu::Backend& device, const std::function<void()>& work, int num_repetitions);

}  // namespace tools
