// Every launcher compiled for the device: whoever takes one from here does not compile its kernels again.
#pragma once

#include "gpu/portable/cuda/launch.cuh"

namespace gpu {

struct AddPartsArguments;
struct AlignArguments;
struct AllReduceNormArguments;
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
struct NodeArguments;
struct PackRowsArguments;
struct PullCombineArguments;
struct QuantizeRowsArguments;
struct ReceiveArguments;
struct RmsNormArguments;
struct RotateQueryArguments;
struct RouterArguments;
struct SamplerArguments;
struct SwigluArguments;

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

struct Launchers {
  void (*add_parts)(Stream, const AddPartsArguments&);
  void (*align)(Stream, const AlignArguments&);
  void (*all_reduce_norm)(Stream, const AllReduceNormArguments&);
  void (*bf16_linear)(Stream, const Bf16LinearArguments&);
  void (*cache_latent)(Stream, const CacheLatentArguments&);
  void (*combine)(Stream, const CombineArguments&);
  void (*dispatch)(Stream, const DispatchArguments&);
  void (*dispatch_by_nodes)(Stream, const DispatchArguments&, const NodeArguments&);
  void (*embed)(Stream, const EmbedArguments&);
  void (*expanded_attention)(Stream, const ExpandedAttentionArguments&);
  void (*fp8_linear)(Stream, const Fp8LinearArguments&);
  void (*fp8_linear_sm90)(Stream, const Fp8LinearSm90Arguments&);
  void (*gather_latent)(Stream, const GatherLatentArguments&);
  void (*latent_attention)(Stream, const LatentAttentionArguments&);
  void (*pack_rows)(Stream, const PackRowsArguments&);
  void (*pull_combine)(Stream, const PullCombineArguments&);
  void (*quantize_rows)(Stream, const QuantizeRowsArguments&);
  void (*receive)(Stream, const ReceiveArguments&);
  void (*rms_norm)(Stream, const RmsNormArguments&);
  void (*rotate_query)(Stream, const RotateQueryArguments&);
  void (*router)(Stream, const RouterArguments&);
  void (*sampler)(Stream, const SamplerArguments&);
  void (*swiglu)(Stream, const SwigluArguments&);
};

extern const Launchers kLaunchers;

}  // namespace gpu::DSV3_BACKEND
