#include "reference/weight_matrix.hpp"

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/reduce.hpp"

namespace reference {

WeightMatrix::WeightMatrix(const model::WeightSource& source, const std::string& name) : weight_(source.weight(name)) {
  CHECK_EQ(weight_.shape.size(), size_t{2});
  if (is_fp8()) {
    scale_ = source.weight(name + "_scale_inv");
  }
}

void WeightMatrix::code_row(int64_t row, std::span<float> out) const {
  CHECK_EQ(static_cast<int64_t>(out.size()), in_dim());
  const auto offset = static_cast<size_t>(row * in_dim());
  switch (weight_.dtype) {
    case model::DType::kF8E4M3: {
      const auto codes = weight_.codes<uint8_t>().subspan(offset);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = model::decode_f8_e4m3(codes[i]);
      }
      return;
    }
    case model::DType::kBF16: {
      const auto codes = weight_.codes<uint16_t>().subspan(offset);
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] = model::decode_bf16(codes[i]);
      }
      return;
    }
    default: {
      const auto codes = weight_.codes<float>().subspan(offset);
      std::copy(codes.begin(), codes.begin() + in_dim(), out.begin());
    }
  }
}

float WeightMatrix::scale(int64_t row, int64_t block) const {
  if (!is_fp8()) {
    return 1.0f;
  }
  const auto index = static_cast<size_t>((row / kBlockLen) * scale_.shape[1] + block);
  return scale_.dtype == model::DType::kF8E8M0 ? model::decode_f8_e8m0(scale_.codes<uint8_t>()[index])
                                               : scale_.codes<float>()[index];
}

void WeightMatrix::row(int64_t row, std::span<float> out) const {
  code_row(row, out);
  if (!is_fp8()) {
    return;
  }
  for (int64_t begin = 0; begin < in_dim(); begin += kBlockLen) {
    const float s = scale(row, begin / kBlockLen);
    for (int64_t i = begin; i < std::min(begin + kBlockLen, in_dim()); ++i) {
      out[static_cast<size_t>(i)] *= s;
    }
  }
}

void WeightMatrix::bf16_row(int64_t row_idx, std::span<float> out) const {
  row(row_idx, out);
  for (float& value : out) {
    value = round_to_bf16(value);
  }
}

}  // namespace reference
