// One step of the tensor core a warp, on operands that tell its arithmetic: where sums are cut off and how many products meet at once.
#pragma once

#include "gpu/portable/fragments.hpp"
#include "gpu/portable/kernel.hpp"

namespace gpu {

struct ProbeArguments {
  const FragmentA* a = nullptr;  // [num_probes, 32]
  const FragmentB* b = nullptr;  // [num_probes, 32]
  const FragmentC* c = nullptr;  // [num_probes, 32]: what the products are added to
  FragmentC* d = nullptr;        // [num_probes, 32]
  bool in_e4m3 = false;          // operands are E4M3, else BF16
};

}  // namespace gpu

namespace gpu::DSV3_BACKEND {

// Grid: one block of one warp for each probe. No shared memory.
GPU_KERNEL probe_kernel(ProbeArguments arguments) {
  const int64_t at = static_cast<int64_t>(block_idx().x) * kLanes + thread_idx().x;
  const FragmentA a[1][1] = {{arguments.a[at]}};
  const FragmentB b[1][1] = {{arguments.b[at]}};
  FragmentC c[1][1] = {{arguments.c[at]}};
  if (arguments.in_e4m3) {
    multiply_e4m3(c, a, b);
  } else {
    multiply_half16(c, a, b);
  }
  arguments.d[at] = c[0][0];
}

inline void probe(Stream stream, int64_t num_probes, const ProbeArguments& arguments) {
  launch(stream,
         {.name = "probe", .grid = {static_cast<unsigned>(num_probes)}, .block = {kLanes}},
         probe_kernel,
         arguments);
}

}  // namespace gpu::DSV3_BACKEND
