// A weight of a linear layer with its scales: rows of numbers, however the checkpoint stores them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/tensor_view.hpp"
#include "model/weight_source.hpp"
#include "reference/simd/kernels.hpp"

namespace reference {

// What the elements of a weight are read as.
enum class WeightForm {
  kCodes,   // the numbers of the codes, without scales
  kValues,  // FP32(code * scale): the weight as exact mode sees it
  kBf16,    // the same, rounded to BF16: DeepSeek's weight_dequant
  kFp16,    // the same, rounded to FP16
};

// What a linear in the 16-bit format (Rules::half) reads.
inline WeightForm half_form(model::DType half) {
  return half == model::DType::kF16 ? WeightForm::kFp16 : WeightForm::kBf16;
}

// Up to eight rows of one block of 128 columns. Of a ragged last block only the first `len` columns are there.
struct PanelPlace {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t block = 0;
  int64_t len = 0;

  [[nodiscard]] bool is_whole() const { return num_rows == simd::kPanelRows && len == simd::kPanelLen; }
};

// Weight [out, in]; for FP8 also scale [ceil(out/128), ceil(in/128)], FP32 or E8M0. Real value = FP32(code * scale).
class WeightMatrix {
 public:
  // A weight without scales.
  explicit WeightMatrix(model::TensorView weight);
  // Fetches the weight and, if it is FP8, the companion `<name>_scale_inv`.
  WeightMatrix(const model::WeightSource& source, const std::string& name);

  [[nodiscard]] int64_t out_dim() const { return out_dim_; }
  [[nodiscard]] int64_t in_dim() const { return in_dim_; }
  [[nodiscard]] bool is_fp8() const { return weight_.dtype == model::DType::kF8E4M3; }

  // Elements [first, first + out.size()) of a row. True if they are all BF16 or E4M3 numbers whose products with others of the
  // kind fit a float (simd::kSmallestExact, kLargestExact).
  bool read(WeightForm form, int64_t row, int64_t first, std::span<float> out) const;
  // read() of columns [first, first + len) of several rows, within one block of columns; row r to out + r * out_stride.
  bool read_rows(WeightForm form,
                 int64_t first_row,
                 int64_t num_rows,
                 int64_t first,
                 int64_t len,
                 float* out,
                 int64_t out_stride) const;
  // Row r of the place to out + r * simd::kPanelLen. `next` is what will be read some time later, if this matrix has it.
  bool read_panel(WeightForm form, const PanelPlace& place, const PanelPlace& next, float* out) const;
  // True if the numbers of `form` are the stored codes, so that add_products() takes them.
  [[nodiscard]] bool stores(WeightForm form) const;
  // The stored code of an element; that of the next row lies in_dim() codes behind it.
  [[nodiscard]] const std::byte* codes_at(int64_t row, int64_t column) const;
  // The products of few rows of x with rows [first_row, first_row + 8), over the whole blocks: simd::Kernels::add_e4m3_rows or
  // add_bf16_rows. What `products` says of the weights is filled in here.
  void add_products(int64_t first_row, simd::StoredProducts& products) const;
  // Whole rows. [in]
  void row_as(WeightForm form, int64_t row, std::span<float> out) const;
  void code_row(int64_t row, std::span<float> out) const;
  void row(int64_t row, std::span<float> out) const;
  void bf16_row(int64_t row, std::span<float> out) const;
  // Scale of the 128-block that holds (row, 128 * block). 1 for weights without scales.
  [[nodiscard]] float scale(int64_t row, int64_t block) const;

 private:
  [[nodiscard]] std::span<const float> scales_of_row(int64_t row) const;
  [[nodiscard]] simd::StoredPanel stored(const PanelPlace& place, const PanelPlace& next) const;
  bool read_codes(int64_t offset, std::span<float> out) const;
  void read_fp16(int64_t row, int64_t first, std::span<float> values) const;

  model::TensorView weight_;
  model::TensorView scale_;
  int64_t out_dim_ = 0;
  int64_t in_dim_ = 0;
  int64_t num_scale_columns_ = 0;
};

}  // namespace reference
