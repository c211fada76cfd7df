#include "reference/half_weights.hpp"

#include <utility>
#include <vector>

#include "reference/values.hpp"

namespace reference {
namespace {

model::TensorView dequantised(const WeightMatrix& stored) {
  const auto in_dim = static_cast<size_t>(stored.in_dim());
  std::vector<float> row(in_dim);
  std::vector<uint16_t> codes(static_cast<size_t>(stored.out_dim()) * in_dim);
  for (int64_t r = 0; r < stored.out_dim(); ++r) {
    stored.bf16_row(r, row);
    simd::kernels().encode_bf16(row.data(), stored.in_dim(), codes.data() + static_cast<size_t>(r) * in_dim);
  }
  return model::make_tensor(model::DType::kBF16, {stored.out_dim(), stored.in_dim()}, std::move(codes));
}

}  // namespace

std::optional<WeightMatrix> HalfWeights::find(const std::string& name, const WeightMatrix& stored) {
  CHECK(stored.is_fp8());
  if (const auto known = kept_.find(name); known != kept_.end()) {
    return known->second;
  }
  const int64_t num_bytes = stored.out_dim() * stored.in_dim() * model::dtype_bytes(model::DType::kBF16);
  if (num_bytes > num_bytes_left_) {
    return std::nullopt;
  }
  num_bytes_left_ -= num_bytes;
  return kept_.emplace(name, WeightMatrix(dequantised(stored))).first->second;
}

}  // namespace reference
