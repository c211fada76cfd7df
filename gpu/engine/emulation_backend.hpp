// The engine's back end on the emulated device. Included by one file compiled plain, one with FP16 in place of BF16, one for checking.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "gpu/engine/backend.hpp"
#include "gpu/kernels/add_parts.cuh"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/bf16_linear.cuh"
#include "gpu/kernels/cache_latent.cuh"
#include "gpu/kernels/combine.cuh"
#include "gpu/kernels/dispatch.cuh"
#include "gpu/kernels/embed.cuh"
#include "gpu/kernels/expanded_attention.cuh"
#include "gpu/kernels/fp8_linear.cuh"
#include "gpu/kernels/fp8_linear_sm90.cuh"
#include "gpu/kernels/gather_latent.cuh"
#include "gpu/kernels/latent_attention.cuh"
#include "gpu/kernels/pack_rows.cuh"
#include "gpu/kernels/pull_combine.cuh"
#include "gpu/kernels/quantize_rows.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/rotate.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/sampler.cuh"
#include "gpu/kernels/swiglu.cuh"

namespace gpu::DSV3_BACKEND {

class EmulationBackend : public Backend {
 public:
  explicit EmulationBackend(const emulation::Options& options, bool has_wgmma = true)
      : device_(options), stream_(device_.create_stream()), has_wgmma_(has_wgmma) {}

  std::byte* allocate(int64_t num_bytes, std::string_view what) override { return device_.allocate(num_bytes, what); }
  [[nodiscard]] int64_t free_bytes() const override {
    return device_.memory().budget_bytes() - device_.memory().used_bytes();
  }

  [[nodiscard]] bool has_wgmma() const override { return has_wgmma_; }
  [[nodiscard]] model::DType half() const override { return kIsFp16 ? model::DType::kF16 : model::DType::kBF16; }

  void upload(void* to, const void* from, int64_t num_bytes) override { copy(to, from, num_bytes); }
  void download(void* to, const void* from, int64_t num_bytes) override {
    copy(to, from, num_bytes);
    synchronize();
  }
  void copy(void* to, const void* from, int64_t num_bytes) override {
    device_.enqueue_copy(stream_, to, from, num_bytes);
  }
  void clear(void* to, int64_t num_bytes) override { device_.enqueue_fill(stream_, to, std::byte{0}, num_bytes); }
  void run_on_host(std::function<void()> work) override { device_.enqueue_host(stream_, std::move(work)); }
  void synchronize() override { device_.synchronize(stream_); }
  void meet_peers() override { device_.meet_peers(); }

  void launch(const AddPartsArguments& arguments) override { add_parts(stream_, arguments); }
  void launch(const AlignArguments& arguments) override { align(stream_, arguments); }
  void launch(const Bf16LinearArguments& arguments) override { bf16_linear(stream_, arguments); }
  void launch(const CacheLatentArguments& arguments) override { cache_latent(stream_, arguments); }
  void launch(const CombineArguments& arguments) override { combine(stream_, arguments); }
  void launch(const DispatchArguments& arguments) override { dispatch(stream_, arguments); }
  void launch(const EmbedArguments& arguments) override { embed(stream_, arguments); }
  void launch(const ExpandedAttentionArguments& arguments) override { expanded_attention(stream_, arguments); }
  void launch(const Fp8LinearArguments& arguments) override { fp8_linear(stream_, arguments); }
  void launch(const Fp8LinearSm90Arguments& arguments) override { fp8_linear_sm90(stream_, arguments); }
  void launch(const GatherLatentArguments& arguments) override { gather_latent(stream_, arguments); }
  void launch(const LatentAttentionArguments& arguments) override { latent_attention(stream_, arguments); }
  void launch(const PackRowsArguments& arguments) override { pack_rows(stream_, arguments); }
  void launch(const PullCombineArguments& arguments) override { pull_combine(stream_, arguments); }
  void launch(const QuantizeRowsArguments& arguments) override { quantize_rows(stream_, arguments); }
  void launch(const ReceiveArguments& arguments) override { receive(stream_, arguments); }
  void launch(const RmsNormArguments& arguments) override { rms_norm(stream_, arguments); }
  void launch(const RotateQueryArguments& arguments) override { rotate_query(stream_, arguments); }
  void launch(const RouterArguments& arguments) override { router(stream_, arguments); }
  void launch(const SamplerArguments& arguments) override { sampler(stream_, arguments); }
  void launch(const SwigluArguments& arguments) override { swiglu(stream_, arguments); }

  void begin_capture() override { device_.begin_capture(stream_); }
  int end_capture() override {
    graphs_.push_back(device_.end_capture(stream_));
    return static_cast<int>(graphs_.size()) - 1;
  }
  void replay(int graph) override { device_.launch(stream_, graphs_.at(static_cast<size_t>(graph))); }

 protected:
  [[nodiscard]] Stream stream() const { return stream_; }

 private:
  emulation::Device device_;
  Stream stream_;
  bool has_wgmma_;
  std::vector<emulation::Graph> graphs_;
};

}  // namespace gpu::DSV3_BACKEND
