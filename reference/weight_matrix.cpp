#include "reference/weight_matrix.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "reference/numerics/fp16.hpp"
#include "reference/numerics/reduce.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {

WeightMatrix::WeightMatrix(model::TensorView weight) : weight_(std::move(weight)) {
  CHECK_EQ(weight_.shape.size(), size_t{2});
  out_dim_ = weight_.shape[0];
  in_dim_ = weight_.shape[1];
}

WeightMatrix::WeightMatrix(const model::WeightSource& source, const std::string& name)
    : WeightMatrix(source.weight(name)) {
  if (is_fp8()) {
    scale_ = source.weight(name + "_scale_inv");
    CHECK_EQ(scale_.shape.size(), size_t{2});
    num_scale_columns_ = scale_.shape[1];
    CHECK(scale_.dtype == model::DType::kF32 || scale_.dtype == model::DType::kF8E8M0);
  } else {
    CHECK(weight_.dtype == model::DType::kBF16 || weight_.dtype == model::DType::kF32);
  }
}

bool WeightMatrix::read_codes(int64_t offset, std::span<float> out) const {
  const auto len = static_cast<int64_t>(out.size());
  const std::byte* codes = weight_.bytes.data() + offset * model::dtype_bytes(weight_.dtype);
  switch (weight_.dtype) {
    case model::DType::kF8E4M3:
      simd::kernels().decode_e4m3(reinterpret_cast<const uint8_t*>(codes), len, out.data());
      return true;
    case model::DType::kBF16:
      return simd::kernels().decode_bf16(reinterpret_cast<const uint16_t*>(codes), len, out.data());
    default: std::copy_n(reinterpret_cast<const float*>(codes), len, out.begin()); return false;
  }
}

// Codes to FP16 numbers, in place.
void WeightMatrix::read_fp16(int64_t row, int64_t first, std::span<float> values) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t block = (first + static_cast<int64_t>(i)) / kBlockLen;
    values[i] = round_to_fp16(is_fp8() ? values[i] * scale(row, block) : values[i]);
  }
}

bool WeightMatrix::read(WeightForm form, int64_t row, int64_t first, std::span<float> out) const {
  const auto len = static_cast<int64_t>(out.size());
  CHECK(row >= 0 && row < out_dim_ && first >= 0 && first + len <= in_dim_);
  const bool has_exact_products = read_codes(row * in_dim_ + first, out);
  if (form == WeightForm::kFp16) {
    read_fp16(row, first, out);
    return false;
  }
  if (form == WeightForm::kCodes || weight_.dtype == model::DType::kBF16 ||
      (form == WeightForm::kValues && !is_fp8())) {
    return has_exact_products;
  }
  bool all_exact = form == WeightForm::kBf16;
  for (int64_t begin = 0; begin < len;) {
    const int64_t block = (first + begin) / kBlockLen;
    const int64_t end = std::min(len, (block + 1) * kBlockLen - first);
    const float s = scale(row, block);
    if (form == WeightForm::kBf16) {
      all_exact = simd::kernels().scale_to_bf16(out.data() + begin, end - begin, s) && all_exact;
    } else {
      std::for_each(out.begin() + begin, out.begin() + end, [s](float& value) { value *= s; });
    }
    begin = end;
  }
  return all_exact;
}

const std::byte* WeightMatrix::codes_at(int64_t row, int64_t column) const {
  return weight_.bytes.data() + (row * in_dim_ + column) * model::dtype_bytes(weight_.dtype);
}

simd::StoredPanel WeightMatrix::stored(const PanelPlace& place, const PanelPlace& next) const {
  const PanelPlace& later = next.first_row + place.num_rows <= out_dim_ ? next : place;
  return {.codes = codes_at(place.first_row, place.block * kBlockLen),
          .stride = in_dim_,
          .num_rows = place.num_rows,
          .next = codes_at(later.first_row, later.block * kBlockLen)};
}

bool WeightMatrix::stores(WeightForm form) const {
  return is_fp8() ? form == WeightForm::kCodes : weight_.dtype == model::DType::kBF16 && form != WeightForm::kFp16;
}

// Valid until the next call in the same thread.
std::span<const float> WeightMatrix::scales_of_row(int64_t row) const {
  const auto count = static_cast<size_t>(num_scale_columns_);
  if (scale_.dtype == model::DType::kF32) {
    return scale_.codes<float>().subspan(static_cast<size_t>(row / kBlockLen) * count, count);
  }
  thread_local std::vector<float> decoded;
  decoded.resize(count);
  for (size_t block = 0; block < count; ++block) {
    decoded[block] = scale(row, static_cast<int64_t>(block));
  }
  return decoded;
}

void WeightMatrix::add_products(int64_t first_row, simd::StoredProducts& products) const {
  CHECK(first_row >= 0 && first_row + simd::kPanelRows <= out_dim_);
  const bool has_next = first_row + 2 * simd::kPanelRows <= out_dim_;
  products.num_blocks = in_dim_ / kBlockLen;
  products.codes = codes_at(first_row, 0);
  products.stride = in_dim_;
  products.next = codes_at(has_next ? first_row + simd::kPanelRows : first_row, 0);
  if (is_fp8()) {
    products.w_scales = scales_of_row(first_row).data();
    simd::kernels().add_e4m3_rows(products);
  } else {
    simd::kernels().add_bf16_rows(products);
  }
}

bool WeightMatrix::read_rows(WeightForm form,
                             int64_t first_row,
                             int64_t num_rows,
                             int64_t first,
                             int64_t len,
                             float* out,
                             int64_t out_stride) const {
  CHECK(first_row >= 0 && first_row + num_rows <= out_dim_ && first >= 0 && first + len <= in_dim_);
  CHECK_EQ(first / kBlockLen, (first + len - 1) / kBlockLen);
  bool all_exact = true;
  for (int64_t r = 0; r < num_rows;) {
    const int64_t row = first_row + r;
    const int64_t count =
        is_fp8() && form == WeightForm::kBf16 ? std::min(num_rows - r, kBlockLen - row % kBlockLen) : 1;
    float* place = out + r * out_stride;
    const bool exact =
        count > 1
            ? simd::kernels().dequantize_e4m3(
                  {.codes = codes_at(row, first), .stride = in_dim_, .num_rows = count, .next = codes_at(row, first)},
                  len,
                  scale(row, first / kBlockLen),
                  place,
                  out_stride)
            : read(form, row, first, std::span<float>(place, static_cast<size_t>(len)));
    all_exact = all_exact && exact;
    r += count;
  }
  return all_exact;
}

bool WeightMatrix::read_panel(WeightForm form, const PanelPlace& place, const PanelPlace& next, float* out) const {
  const int64_t first = place.block * kBlockLen;
  CHECK(place.first_row >= 0 && place.first_row + place.num_rows <= out_dim_ && first + place.len <= in_dim_);
  if (stores(form)) {
    if (!is_fp8()) {
      return simd::kernels().decode_bf16_panel(stored(place, next), place.len, out);
    }
    simd::kernels().decode_e4m3_panel(stored(place, next), place.len, out);
    return true;
  }
  return read_rows(form, place.first_row, place.num_rows, first, place.len, out, simd::kPanelLen);
}

void WeightMatrix::row_as(WeightForm form, int64_t row, std::span<float> out) const {
  CHECK_EQ(static_cast<int64_t>(out.size()), in_dim());
  read(form, row, 0, out);
}

void WeightMatrix::code_row(int64_t row, std::span<float> out) const {
  row_as(WeightForm::kCodes, row, out);
}

void WeightMatrix::row(int64_t row, std::span<float> out) const {
  row_as(WeightForm::kValues, row, out);
}

void WeightMatrix::bf16_row(int64_t row, std::span<float> out) const {
  row_as(WeightForm::kBf16, row, out);
}

float WeightMatrix::scale(int64_t row, int64_t block) const {
  if (!is_fp8()) {
    return 1.0f;
  }
  const std::byte* codes = scale_.bytes.data();
  const int64_t index = (row / kBlockLen) * num_scale_columns_ + block;
  return scale_.dtype == model::DType::kF8E8M0 ? model::decode_f8_e8m0(reinterpret_cast<const uint8_t*>(codes)[index])
                                               : reinterpret_cast<const float*>(codes)[index];
}

}  // namespace reference
