// The engine's back end on the first CUDA device. Included by one file for each 16-bit format of kernels.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"
#include "gpu/engine/cuda_handles.cuh"
#include "gpu/engine/pinned_uploads.cuh"
#include "gpu/kernels/launchers.cuh"
#include "gpu/portable/require.hpp"

namespace gpu::DSV3_BACKEND {

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(int device) : stream_((check_call(cudaSetDevice(device), "cudaSetDevice"), create_stream())) {}

  std::byte* allocate(int64_t num_bytes, std::string_view /*what*/) override {
    memory_.push_back(allocate_device(num_bytes));
    return static_cast<std::byte*>(memory_.back().get());
  }
  [[nodiscard]] int64_t free_bytes() const override {
    size_t free = 0;
    size_t all = 0;
    check_call(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
    return static_cast<int64_t>(free);
  }
  [[nodiscard]] bool has_wgmma() const override {
    constexpr int kHopper = 9;
    int device = 0;
    int major = 0;
    check_call(cudaGetDevice(&device), "cudaGetDevice");
    check_call(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    return major == kHopper;
  }
  [[nodiscard]] model::DType half() const override { return kIsFp16 ? model::DType::kF16 : model::DType::kBF16; }

  void upload(void* to, const void* from, int64_t num_bytes) override {
    uploads_.upload(stream_.get(), to, from, num_bytes);
  }
  void download(void* to, const void* from, int64_t num_bytes) override {
    copy_async(to, from, num_bytes, cudaMemcpyDeviceToHost);
    synchronize();
  }
  void copy(void* to, const void* from, int64_t num_bytes) override {
    copy_async(to, from, num_bytes, cudaMemcpyDeviceToDevice);
  }
  void clear(void* to, int64_t num_bytes) override {
    check_call(cudaMemsetAsync(to, 0, static_cast<size_t>(num_bytes), stream_.get()), "cudaMemsetAsync");
  }
  // Communicators of the host read and write buffers themselves, which here they cannot: ranks with GPUs have links of their own.
  void run_on_host(std::function<void()> /*work*/) override {
    throw ArgumentError(
        "the host does not reach a GPU's memory: ranks with GPUs exchange tensors by NCCL and by kernels");
  }
  [[nodiscard]] void* native_stream() const override { return stream_.get(); }
  void synchronize() override { check_call(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }

  void launch(const AddPartsArguments& arguments) override { kLaunchers.add_parts(stream(), arguments); }
  void launch(const AlignArguments& arguments) override { kLaunchers.align(stream(), arguments); }
  void launch(const Bf16LinearArguments& arguments) override { kLaunchers.bf16_linear(stream(), arguments); }
  void launch(const CacheLatentArguments& arguments) override { kLaunchers.cache_latent(stream(), arguments); }
  void launch(const CombineArguments& arguments) override { kLaunchers.combine(stream(), arguments); }
  void launch(const DispatchArguments& arguments) override { kLaunchers.dispatch(stream(), arguments); }
  void launch(const EmbedArguments& arguments) override { kLaunchers.embed(stream(), arguments); }
  void launch(const ExpandedAttentionArguments& arguments) override {
    kLaunchers.expanded_attention(stream(), arguments);
  }
  void launch(const Fp8LinearArguments& arguments) override { kLaunchers.fp8_linear(stream(), arguments); }
  void launch(const Fp8LinearSm90Arguments& arguments) override { kLaunchers.fp8_linear_sm90(stream(), arguments); }
  void launch(const GatherLatentArguments& arguments) override { kLaunchers.gather_latent(stream(), arguments); }
  void launch(const LatentAttentionArguments& arguments) override { kLaunchers.latent_attention(stream(), arguments); }
  void launch(const PackRowsArguments& arguments) override { kLaunchers.pack_rows(stream(), arguments); }
  void launch(const PullCombineArguments& arguments) override { kLaunchers.pull_combine(stream(), arguments); }
  void launch(const QuantizeRowsArguments& arguments) override { kLaunchers.quantize_rows(stream(), arguments); }
  void launch(const ReceiveArguments& arguments) override { kLaunchers.receive(stream(), arguments); }
  void launch(const RmsNormArguments& arguments) override { kLaunchers.rms_norm(stream(), arguments); }
  void launch(const RotateQueryArguments& arguments) override { kLaunchers.rotate_query(stream(), arguments); }
  void launch(const RouterArguments& arguments) override { kLaunchers.router(stream(), arguments); }
  void launch(const SamplerArguments& arguments) override { kLaunchers.sampler(stream(), arguments); }
  void launch(const SwigluArguments& arguments) override { kLaunchers.swiglu(stream(), arguments); }

  void begin_capture() override {
    check_call(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  }
  int end_capture() override {
    cudaGraph_t captured = nullptr;
    check_call(cudaStreamEndCapture(stream_.get(), &captured), "cudaStreamEndCapture");
    const OwnedGraph graph(captured);
    cudaGraphExec_t executable = nullptr;
    check_call(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
    graphs_.emplace_back(executable);
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph) override {
    check_call(cudaGraphLaunch(graphs_.at(static_cast<size_t>(graph)).get(), stream_.get()), "cudaGraphLaunch");
  }

  std::vector<double> time_us(const std::function<void()>& work, int num_repetitions) {
    int device = 0;
    int l2_bytes = 0;
    check_call(cudaGetDevice(&device), "cudaGetDevice");
    check_call(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    const DeviceBytes cold = allocate_device(int64_t{2} * l2_bytes);
    const OwnedEvent before = create_event(cudaEventDefault);
    const OwnedEvent after = create_event(cudaEventDefault);
    begin_capture();
    work();
    const int graph = end_capture();
    replay(graph);  // the first time loads the kernels
    std::vector<double> times;
    for (int i = 0; i < num_repetitions; ++i) {
      clear(cold.get(), int64_t{2} * l2_bytes);
      check_call(cudaEventRecord(before.get(), stream_.get()), "cudaEventRecord");
      replay(graph);
      check_call(cudaEventRecord(after.get(), stream_.get()), "cudaEventRecord");
      synchronize();
      float ms = 0;
      check_call(cudaEventElapsedTime(&ms, before.get(), after.get()), "cudaEventElapsedTime");
      times.push_back(double{ms} * 1e3);
    }
    graphs_.pop_back();
    return times;
  }

  void enter_op(const char* layer, const char* op) override { nvtxRangePushA((std::string(layer) + op).c_str()); }
  void leave_op() override { nvtxRangePop(); }

 private:
  [[nodiscard]] Stream stream() const { return {stream_.get()}; }
  void copy_async(void* to, const void* from, int64_t num_bytes, cudaMemcpyKind kind) {
    check_call(cudaMemcpyAsync(to, from, static_cast<size_t>(num_bytes), kind, stream_.get()), "cudaMemcpyAsync");
  }

  OwnedStream stream_;
  PinnedUploads uploads_;
  std::vector<DeviceBytes> memory_;
  std::vector<ExecutableGraph> graphs_;
};

}  // namespace gpu::DSV3_BACKEND
