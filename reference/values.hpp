// Between stored tensors and the numbers an op computes with: T is float in the published modes, double in exact mode.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/tensor_view.hpp"
#include "reference/half.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {

// Stored codes as numbers. Exact whenever T can hold them (FP64 only meets T = double). out: [number of codes]
template <typename T>
void load_codes(model::DType dtype, std::span<const std::byte> bytes, std::span<T> out) {
  CHECK_EQ(bytes.size(), out.size() * static_cast<size_t>(model::dtype_bytes(dtype)));
  switch (dtype) {
    case model::DType::kBF16: {
      const auto* codes = reinterpret_cast<const uint16_t*>(bytes.data());
      if constexpr (std::is_same_v<T, float>) {
        simd::kernels().decode_bf16(codes, static_cast<int64_t>(out.size()), out.data());
      } else {
        std::transform(codes, codes + out.size(), out.begin(), model::decode_bf16);
      }
      return;
    }
    case model::DType::kF16: {
      const auto* codes = reinterpret_cast<const uint16_t*>(bytes.data());
      std::transform(codes, codes + out.size(), out.begin(), decode_fp16);
      return;
    }
    case model::DType::kF32: std::copy_n(reinterpret_cast<const float*>(bytes.data()), out.size(), out.begin()); return;
    default: break;
  }
  CHECK((dtype == model::DType::kF64 && std::is_same_v<T, double>));
  std::copy_n(reinterpret_cast<const double*>(bytes.data()), out.size(), out.begin());
}

// All elements of a tensor.
template <typename T>
std::vector<T> load(const model::TensorView& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.size()));
  load_codes<T>(tensor.dtype, tensor.bytes, values);
  return values;
}

// Elements [first, first + out.size()) of a BF16, F16 or F32 tensor, in row-major order.
inline void load_part(const model::TensorView& tensor, int64_t first, std::span<float> out) {
  CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= tensor.size());
  if (tensor.dtype == model::DType::kBF16) {
    const auto codes = tensor.codes<uint16_t>().subspan(static_cast<size_t>(first));
    simd::kernels().decode_bf16(codes.data(), static_cast<int64_t>(out.size()), out.data());
  } else if (tensor.dtype == model::DType::kF16) {
    const auto codes = tensor.codes<uint16_t>().subspan(static_cast<size_t>(first), out.size());
    std::ranges::transform(codes, out.begin(), decode_fp16);
  } else {
    CHECK(tensor.dtype == model::DType::kF32);
    std::ranges::copy(tensor.codes<float>().subspan(static_cast<size_t>(first), out.size()), out.begin());
  }
}

// Codes of a 16-bit format, each value rounded once.
inline std::vector<uint16_t> encode_half(model::DType half, std::span<const float> values) {
  std::vector<uint16_t> codes(values.size());
  if (half == model::DType::kF16) {
    std::ranges::transform(values, codes.begin(), encode_fp16);
    return codes;
  }
  CHECK(half == model::DType::kBF16);
  simd::kernels().encode_bf16(values.data(), static_cast<int64_t>(values.size()), codes.data());
  return codes;
}

// Stores results in the format of the rule, which is where the last rounding of an op happens. Exact mode (double) keeps FP64.
template <typename T>
model::TensorView store(model::Shape shape, std::vector<T> values, model::DType dtype) {
  if constexpr (std::is_same_v<T, double>) {
    return model::make_tensor(model::DType::kF64, std::move(shape), std::move(values));
  } else {
    if (dtype == model::DType::kF32) {
      return model::make_tensor(dtype, std::move(shape), std::move(values));
    }
    return model::make_tensor(dtype, std::move(shape), encode_half(dtype, values));
  }
}

// Runs `op` with T = float, or double in exact mode: op.template operator()<T>().
template <typename Function>
auto with_arithmetic(bool exact, Function&& function) {
  return exact ? function.template operator()<double>() : function.template operator()<float>();
}

}  // namespace reference
