#include "reference/generate/step_rows.hpp"

#include <algorithm>

namespace reference {

model::TensorView join_rows(std::span<const model::TensorView> tensors) {
  model::TensorView joined;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const model::TensorView& tensor : tensors) {
    if (tensor.bytes.empty()) {
      continue;
    }
    if (joined.shape.empty()) {
      joined.dtype = tensor.dtype;
      joined.shape = {0, tensor.row_len()};
    }
    CHECK(tensor.dtype == joined.dtype);
    CHECK_EQ(tensor.row_len(), joined.shape[1]);
    joined.shape[0] += tensor.num_rows();
    bytes->insert(bytes->end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  joined.bytes = *bytes;
  joined.owner = bytes;
  return joined;
}

std::vector<Piece> next_pieces(std::span<const int64_t> rows_left, int64_t budget) {
  std::vector<Piece> pieces;
  for (size_t item = 0; item < rows_left.size() && budget > 0; ++item) {
    const int64_t count = std::min(rows_left[item], budget);
    if (count > 0) {
      pieces.push_back({item, count});
      budget -= count;
    }
  }
  return pieces;
}

}  // namespace reference
