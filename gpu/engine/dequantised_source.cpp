#include "gpu/engine/dequantised_source.hpp"

#include <utility>
#include <vector>

#include "gpu/engine/half.hpp"
#include "model/check.hpp"

namespace gpu {

DequantisedSource::DequantisedSource(const model::WeightSource& original, model::DType half)
    : original_(original), half_(half), config_(original.config()) {
  config_.quantization.reset();
}

model::TensorView DequantisedSource::weight(const std::string& name) const {
  return dequantised(name, original_.weight(name), 0);
}

model::TensorView DequantisedSource::rows(const std::string& name, int64_t begin, int64_t end) const {
  return dequantised(name, original_.rows(name, begin, end), begin);
}

// Rows of a matrix from `first_row` on; what is not FP8 stays as it is.
model::TensorView DequantisedSource::dequantised(const std::string& name,
                                                 const model::TensorView& codes,
                                                 int64_t first_row) const {
  if (codes.dtype != model::DType::kF8E4M3) {
    return codes;
  }
  const auto& quantization = *original_.config().quantization;
  const model::TensorView scales = original_.weight(name + "_scale_inv");
  const auto scale_of = model::to_double(scales);
  const auto code_of = codes.codes<uint8_t>();
  std::vector<uint16_t> halves;
  halves.reserve(code_of.size());
  for (int64_t row = 0; row < codes.num_rows(); ++row) {
    const int64_t first_scale = (first_row + row) / quantization.block_rows * scales.row_len();
    for (int64_t column = 0; column < codes.row_len(); ++column) {
      const double scale = scale_of[static_cast<size_t>(first_scale + column / quantization.block_cols)];
      const float value = model::decode_f8_e4m3(code_of[static_cast<size_t>(row * codes.row_len() + column)]);
      halves.push_back(round_to_half(half_, value * static_cast<float>(scale)).bits);
    }
  }
  return model::make_tensor(half_, codes.shape, std::move(halves));
}

}  // namespace gpu
