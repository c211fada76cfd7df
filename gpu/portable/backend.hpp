// Which back end the including file is compiled for. Kernels live in namespace gpu::DSV3_BACKEND, so that one program can hold the
// device's, the emulated and the checked form of the same template.
#pragma once

// Compiled with -DDSV3_FP16=1, the 16-bit numbers of kernels (half16 of types.hpp) are FP16.
#if !defined(DSV3_FP16)
#define DSV3_FP16 0
#endif
#if defined(__CUDACC__)
#if DSV3_FP16
#define DSV3_BACKEND cuda_fp16
#else
#define DSV3_BACKEND cuda
#endif
#define GPU_KERNEL __global__ void
#define GPU_GRID_CONSTANT __grid_constant__
#define GPU_DEVICE __device__ __forceinline__
#define GPU_BOTH __host__ __device__ __forceinline__
#define GPU_UNROLL _Pragma("unroll")
#else
// Compiled with -fsanitize=thread, every access is reported to the race checker (emulation/access_hooks.cpp).
#if defined(__SANITIZE_THREAD__)
#define DSV3_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define DSV3_CHECKED 1
#endif
#endif
#if !defined(DSV3_CHECKED)
#define DSV3_CHECKED 0
#endif
// A form of its own, such as a kernel with a planted fault, is compiled with -DDSV3_BACKEND=its_name.
#if !defined(DSV3_BACKEND)
#if DSV3_FP16
#define DSV3_BACKEND emulated_fp16
#elif DSV3_CHECKED
#define DSV3_BACKEND checked
#else
#define DSV3_BACKEND emulated
#endif
#endif
#define GPU_KERNEL inline void
#define GPU_GRID_CONSTANT
#define GPU_DEVICE inline
#define GPU_BOTH inline
#if defined(__clang__)
#define GPU_UNROLL _Pragma("unroll")
#else
#define GPU_UNROLL _Pragma("GCC unroll 64")
#endif
#endif

namespace gpu::DSV3_BACKEND {

inline constexpr bool kIsFp16 = DSV3_FP16 != 0;

}  // namespace gpu::DSV3_BACKEND
