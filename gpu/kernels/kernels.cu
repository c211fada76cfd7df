// Every kernel, compiled for the device: taking a launcher's address instantiates its kernels.
#include "gpu/kernels/add_parts.cuh"
#include "gpu/kernels/align.cuh"
#include "gpu/kernels/all_reduce_norm.cuh"
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
#include "gpu/kernels/launchers.cuh"
#include "gpu/kernels/pack_rows.cuh"
#include "gpu/kernels/pull_combine.cuh"
#include "gpu/kernels/quantize_rows.cuh"
#include "gpu/kernels/rms_norm.cuh"
#include "gpu/kernels/rotate.cuh"
#include "gpu/kernels/router.cuh"
#include "gpu/kernels/sampler.cuh"
#include "gpu/kernels/swiglu.cuh"

namespace gpu::DSV3_BACKEND {

const Launchers kLaunchers{.add_parts = add_parts,
                           .align = align,
                           .all_reduce_norm = all_reduce_norm,
                           .bf16_linear = bf16_linear,
                           .cache_latent = cache_latent,
                           .combine = combine,
                           .dispatch = dispatch,
                           .dispatch_by_nodes = dispatch_by_nodes,
                           .embed = embed,
                           .expanded_attention = expanded_attention,
                           .fp8_linear = fp8_linear,
                           .fp8_linear_sm90 = fp8_linear_sm90,
                           .gather_latent = gather_latent,
                           .latent_attention = latent_attention,
                           .pack_rows = pack_rows,
                           .pull_combine = pull_combine,
                           .quantize_rows = quantize_rows,
                           .receive = receive,
                           .rms_norm = rms_norm,
                           .rotate_query = rotate_query,
                           .router = router,
                           .sampler = sampler,
                           .swiglu = swiglu};

}  // namespace gpu::DSV3_BACKEND
