// A read-only tensor: format, shape, bytes, and an owner that keeps the bytes alive (a mapped file, a vector).
// Cheap to copy. Row-major, contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/check.hpp"
#include "model/dtype.hpp"

namespace model {

using Shape = std::vector<int64_t>;

int64_t num_elements(const Shape& shape);
// "[7, 256]"
std::string shape_text(const Shape& shape);

struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  [[nodiscard]] int64_t size() const { return num_elements(shape); }
  [[nodiscard]] int64_t num_rows() const { return shape.empty() ? 1 : shape.front(); }
  // Elements of one row (product of all dimensions but the first).
  [[nodiscard]] int64_t row_len() const { return num_rows() == 0 ? 0 : size() / num_rows(); }

  // The stored codes: T is float for F32, double for F64, uint16_t for BF16 and F16, uint8_t for FP8, int32_t, int64_t.
  // Checks only the width.
  template <typename T>
  [[nodiscard]] std::span<const T> codes() const {
    CHECK_EQ(static_cast<int64_t>(sizeof(T)), dtype_bytes(dtype));
    return {reinterpret_cast<const T*>(bytes.data()), static_cast<size_t>(size())};
  }
};

// Takes over the elements. Checks that their number fits the shape and their width the dtype.
template <typename T>
TensorView make_tensor(DType dtype, Shape shape, std::vector<T> elements) {
  CHECK_EQ(static_cast<int64_t>(elements.size()), num_elements(shape));
  CHECK_EQ(static_cast<int64_t>(sizeof(T)), dtype_bytes(dtype));
  auto owner = std::make_shared<const std::vector<T>>(std::move(elements));
  const auto bytes = std::as_bytes(std::span<const T>(*owner));
  return {dtype, std::move(shape), bytes, owner};
}

// The same bytes under another shape. Checks the number of elements.
TensorView reshape(const TensorView& tensor, Shape shape);
// Rows [begin, end) of the first dimension; shares the bytes.
TensorView slice_rows(const TensorView& tensor, int64_t begin, int64_t end);
// Columns [begin, end) of a matrix; a copy.
TensorView slice_columns(const TensorView& tensor, int64_t begin, int64_t end);
// All elements as numbers (exact for every dtype but I64 beyond 2^53).
std::vector<double> to_double(const TensorView& tensor);

}  // namespace model
