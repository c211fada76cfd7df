// What the engine asks of a device: memory, copies, the kernels in one order, and graphs. One back end for each way of running them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "gpu/emulation/options.hpp"
#include "model/dtype.hpp"

namespace gpu {

struct AddPartsArguments;
struct AlignArguments;
struct Bf16LinearArguments;
struct CacheLatentArguments;
struct CombineArguments;
struct DispatchArguments;
struct EmbedArguments;
struct ExpandedAttentionArguments;
struct Fp8LinearArguments;
struct Fp8LinearSm90Arguments;
struct GatherLatentArguments;
struct LatentAttentionArguments;
struct PackRowsArguments;
struct PullCombineArguments;
struct QuantizeRowsArguments;
struct ReceiveArguments;
struct RmsNormArguments;
struct RotateQueryArguments;
struct RouterArguments;
struct SamplerArguments;
struct SwigluArguments;

// Calls are done in the order they are made. Throws what the device throws (emulation::Fault, DeviceError, ArgumentError of a launcher).
class Backend {
 public:
  virtual ~Backend() = default;

  // 256-byte aligned, holding anything; released with the back end. `what` names it in reports.
  virtual std::byte* allocate(int64_t num_bytes, std::string_view what) = 0;
  [[nodiscard]] virtual int64_t free_bytes() const = 0;
  // Whether the kernels whose names end in _sm90 run: a Hopper.
  [[nodiscard]] virtual bool has_wgmma() const = 0;
  // What half16 is to its kernels: kBF16 or kF16.
  [[nodiscard]] virtual model::DType half() const = 0;

  // Host to device; `from` stays as it is until the next synchronize() or download().
  virtual void upload(void* to, const void* from, int64_t num_bytes) = 0;
  // Device to host; waits.
  virtual void download(void* to, const void* from, int64_t num_bytes) = 0;
  // Device to device.
  virtual void copy(void* to, const void* from, int64_t num_bytes) = 0;
  virtual void clear(void* to, int64_t num_bytes) = 0;
  // Work of the host that has its place among the launches, in graphs too.
  virtual void run_on_host(std::function<void()> work) = 0;
  virtual void synchronize() = 0;
  // Where its calls go, for libraries that put work of their own there: a cudaStream_t; null on a device without streams of CUDA's.
  [[nodiscard]] virtual void* native_stream() const { return nullptr; }
  // Of devices whose kernels reach into each other's memory: what their hosts have said to each other holds for their kernels from here
  // on. A collective of all of them.
  virtual void meet_peers() {}

  virtual void launch(const AddPartsArguments& arguments) = 0;
  virtual void launch(const AlignArguments& arguments) = 0;
  virtual void launch(const Bf16LinearArguments& arguments) = 0;
  virtual void launch(const CacheLatentArguments& arguments) = 0;
  virtual void launch(const CombineArguments& arguments) = 0;
  virtual void launch(const DispatchArguments& arguments) = 0;
  virtual void launch(const EmbedArguments& arguments) = 0;
  virtual void launch(const ExpandedAttentionArguments& arguments) = 0;
  virtual void launch(const Fp8LinearArguments& arguments) = 0;
  virtual void launch(const Fp8LinearSm90Arguments& arguments) = 0;
  virtual void launch(const GatherLatentArguments& arguments) = 0;
  virtual void launch(const LatentAttentionArguments& arguments) = 0;
  virtual void launch(const PackRowsArguments& arguments) = 0;
  virtual void launch(const PullCombineArguments& arguments) = 0;
  virtual void launch(const QuantizeRowsArguments& arguments) = 0;
  virtual void launch(const ReceiveArguments& arguments) = 0;
  virtual void launch(const RmsNormArguments& arguments) = 0;
  virtual void launch(const RotateQueryArguments& arguments) = 0;
  virtual void launch(const RouterArguments& arguments) = 0;
  virtual void launch(const SamplerArguments& arguments) = 0;
  virtual void launch(const SwigluArguments& arguments) = 0;

  // Between the two, launches are recorded, not done. replay() does them again, with the arguments they were recorded with.
  virtual void begin_capture() = 0;
  virtual int end_capture() = 0;
  virtual void replay(int graph) = 0;

  // Calls between the two are those of the op layer + op ("layer.3" and ".attn.q_a"), for tools that show a device's time line.
  virtual void enter_op(const char* /*layer*/, const char* /*op*/) {}
  virtual void leave_op() {}
};

// The emulated device (docs/gpu.md). Without wgmma it stands for another device than a Hopper.
std::unique_ptr<Backend> make_emulated_backend(const emulation::Options& options, bool has_wgmma = true);
// The same with kernels that compute in FP16 where those compute in BF16.
std::unique_ptr<Backend> make_emulated_fp16_backend(const emulation::Options& options, bool has_wgmma = true);
// make_emulated_backend() with every access of every kernel reported to the race checker; slower, one OS thread.
std::unique_ptr<Backend> make_checked_backend(const emulation::Options& options);

}  // namespace gpu
