// Conversions between the project's number types and FP32 on the device; each is one instruction of sm_89 and later.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "gpu/portable/types.hpp"

namespace gpu::DSV3_BACKEND {

GPU_DEVICE float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

GPU_DEVICE bf16 to_bf16(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}

GPU_DEVICE float to_float(fp16 x) {
  return __half2float(__ushort_as_half(x.bits));
}

GPU_DEVICE fp16 to_fp16(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}

GPU_DEVICE float to_float(fp8_e4m3 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, __NV_E4M3)));
}

GPU_DEVICE fp8_e4m3 to_fp8_e4m3(float x) {
  return {__nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
}

}  // namespace gpu::DSV3_BACKEND
