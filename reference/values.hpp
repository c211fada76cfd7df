// Between stored tensors and the numbers an op computes with: T is float in the published modes, double in exact mode.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/tensor_view.hpp"
#include "reference/half.hpp"
#include "reference/reused.hpp"
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
Reused<T> load(const model::TensorView& tensor) {
  Reused<T> values(static_cast<size_t>(tensor.size()));
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
inline Reused<uint16_t> encode_half(model::DType half, std::span<const float> values) {
  Reused<uint16_t> codes(values.size());
  if (half == model::DType::kF16) {
    std::ranges::transform(values, codes.begin(), encode_fp16);
    return codes;
  }
  CHECK(half == model::DType::kBF16);
  simd::kernels().encode_bf16(values.data(), static_cast<int64_t>(values.size()), codes.data());
  return codes;
}

// The extents of a result: listed, or those of another tensor. Lives as long as the expression it is written in.
class Extents {
 public:
  Extents(std::initializer_list<int64_t> listed) : all_(listed.begin(), listed.size()) {}
  template <std::convertible_to<std::span<const int64_t>> List>
  Extents(const List& list) : all_(list) {}  // NOLINT(google-explicit-constructor): a shape is such a list

  [[nodiscard]] std::span<const int64_t> all() const { return all_; }
  [[nodiscard]] int64_t num_elements() const {
    return std::accumulate(all_.begin(), all_.end(), int64_t{1}, std::multiplies<>());
  }

 private:
  std::span<const int64_t> all_;
};

// Lets `y` be a tensor of these elements, which it takes over. The memory of its old shape serves for the new one, and what it shared
// with others stays theirs.
template <typename Elements>
void put(model::TensorView& y, model::DType dtype, Extents extents, Elements elements) {
  CHECK_EQ(static_cast<int64_t>(elements.size()), extents.num_elements());
  CHECK_EQ(static_cast<int64_t>(sizeof(typename Elements::value_type)), model::dtype_bytes(dtype));
  auto owner = std::allocate_shared<Elements>(ReusingAllocator<Elements>(), std::move(elements));
  y.dtype = dtype;
  y.shape.assign(extents.all().begin(), extents.all().end());
  y.bytes = std::as_bytes(std::span(std::as_const(*owner)));
  y.owner = std::move(owner);
}

// Stores results in the format of the rule, which is where the last rounding of an op happens. Exact mode (double) keeps FP64.
template <typename Elements>
void store(model::TensorView& y, Extents extents, Elements values, model::DType dtype) {
  if constexpr (std::is_same_v<typename Elements::value_type, double>) {
    put(y, model::DType::kF64, extents, std::move(values));
  } else if (dtype == model::DType::kF32) {
    put(y, dtype, extents, std::move(values));
  } else {
    put(y, dtype, extents, encode_half(dtype, values));
  }
}

// The same as a tensor of its own.
template <typename T, typename Elements>
model::TensorView store(const model::Shape& shape, Elements values, model::DType dtype) {
  static_assert(std::is_same_v<typename Elements::value_type, T>);
  model::TensorView y;
  store(y, shape, std::move(values), dtype);
  return y;
}

// Runs `op` with T = float, or double in exact mode: op.template operator()<T>().
template <typename Function>
auto with_arithmetic(bool exact, Function&& function) {
  return exact ? function.template operator()<double>() : function.template operator()<float>();
}

}  // namespace reference
