// Which back end the including file is compiled for. Kernels live in namespace gpu::DSV3_BACKEND, so that one program can hold the
// device's, the emulated and the checked form of the same template.
#pragma once

#if defined(__CUDACC__)
#define DSV3_BACKEND cuda
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
#if DSV3_CHECKED
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
