#include "model/tensor_view.hpp"

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

std::vector<double> to_double(const TensorView& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.size()));
  const auto step = static_cast<size_t>(dtype_bytes(tensor.dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = decode(tensor.dtype, tensor.bytes.data() + i * step);
  }
  return values;
}

}  // namespace model
