#include "model/tensor_view.hpp"

#include <cstring>

#include <fmt/ranges.h>

namespace model {

int64_t num_elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  return count;
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

TensorView reshape(const TensorView& tensor, Shape shape) {
  CHECK_EQ(num_elements(shape), tensor.size());
  TensorView result = tensor;
  result.shape = std::move(shape);
  return result;
}

TensorView slice_rows(const TensorView& tensor, int64_t begin, int64_t end) {
  CHECK(0 <= begin && begin <= end && end <= tensor.num_rows());
  TensorView result = tensor;
  result.shape.front() = end - begin;
  const auto row_bytes = static_cast<size_t>(tensor.row_len() * dtype_bytes(tensor.dtype));
  result.bytes =
      tensor.bytes.subspan(static_cast<size_t>(begin) * row_bytes, static_cast<size_t>(end - begin) * row_bytes);
  return result;
}

TensorView slice_columns(const TensorView& tensor, int64_t begin, int64_t end) {
  CHECK(0 <= begin && begin <= end && end <= tensor.row_len());
  const int64_t width = dtype_bytes(tensor.dtype);
  const auto part_bytes = static_cast<size_t>((end - begin) * width);
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(tensor.num_rows()) * part_bytes);
  for (int64_t row = 0; row < tensor.num_rows(); ++row) {
    std::memcpy(bytes->data() + static_cast<size_t>(row) * part_bytes,
                tensor.bytes.data() + (row * tensor.row_len() + begin) * width,
                part_bytes);
  }
  return {tensor.dtype, {tensor.num_rows(), end - begin}, *bytes, bytes};
}

std::vector<double> to_double(const TensorView& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const auto step = static_cast<size_t>(dtype_bytes(tensor.dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = decode(tensor.dtype, tensor.bytes.data() + i * step);
  }
  return values;
}

}  // namespace model
