// Faults in the sums of a linear and in what it stores.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/numerics/bf16.hpp"
#include "tools/faults/fp8_linear.hpp"

namespace tools::faults {
namespace {

// Columns of the weight set to zero: products that are left out. Zero is the zero byte in every format.
FaultyOp without_columns(std::function<bool(int64_t column, int64_t row_len)> left_out) {
  return with_weight([left_out = std::move(left_out)](const TensorView& weight) {
    const int64_t row_len = weight.row_len();
    const auto width = static_cast<size_t>(model::dtype_bytes(weight.dtype));
    auto bytes = std::make_shared<std::vector<std::byte>>(weight.bytes.begin(), weight.bytes.end());
    for (size_t i = 0; i < bytes->size() / width; ++i) {
      if (left_out(static_cast<int64_t>(i) % row_len, row_len)) {
        std::memset(bytes->data() + i * width, 0, width);
      }
    }
    return TensorView{weight.dtype, weight.shape, *bytes, bytes};
  });
}

// To 11 significant bits, as FP16 holds them.
float round_to_fp16(float value) {
  if (value == 0 || !std::isfinite(value)) {
    return value;
  }
  const int exponent = std::max(std::ilogb(value), -14) - 10;
  return std::ldexp(std::nearbyint(std::ldexp(value, -exponent)), exponent);
}

}  // namespace

std::vector<Fault> product_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault("k-02",
                              "kv_a of layer 1 drops the last 16 products of every sum",
                              "layer.1.attn.kv_a",
                              on_nano(),
                              without_columns([](int64_t c, int64_t row_len) { return c >= row_len - 16; })));
  faults.push_back(make_fault("k-21",
                              "one product of every sum is left out",
                              "layer.*.attn.q_a",
                              on_nano(),
                              without_columns([](int64_t c, int64_t) { return c == 37; })));
  faults.push_back(make_fault("k-22",
                              "the third 128-block of every sum is left out",
                              "layer.0.ffn",
                              on_ragged(),
                              without_columns([](int64_t c, int64_t) { return c / 128 == 2; })));
  faults.push_back(make_fault("k-23",
                              "the last 16 products of a block are added twice",
                              "layer.*.attn.q_a",
                              on_ragged(),
                              with_kernel({.dot = [](std::span<const float> a, std::span<const float> b) {
                                float sum = 0;
                                for (size_t k = 0; k < a.size(); ++k) {
                                  sum += a[k] * b[k] * (k + 16 >= a.size() ? 2.0F : 1.0F);
                                }
                                return sum;
                              }})));
  faults.push_back(
      make_fault("k-24",
                 "the running sum between blocks is BF16",
                 "layer.*.attn.q_a",
                 on_nano(),
                 with_kernel({.add = [](float sum, float scaled) { return reference::round_to_bf16(sum + scaled); }})));
  faults.push_back(make_fault("k-25",
                              "each block's sum is rounded to BF16 before it is scaled",
                              "layer.*.attn.kv_a",
                              on_nano(),
                              with_kernel({.dot = [](std::span<const float> a, std::span<const float> b) {
                                float sum = 0;
                                for (size_t k = 0; k < a.size(); ++k) {
                                  sum += a[k] * b[k];
                                }
                                return reference::round_to_bf16(sum);
                              }})));
  faults.push_back(make_fault("k-26",
                              "the result is cut off to BF16 instead of rounded",
                              "layer.*.attn.o_proj",
                              on_nano(),
                              with_kernel({.store = [](float sum) { return truncated_to_bf16(sum); }})));
  faults.push_back(
      make_fault("k-27",
                 "the result is rounded to FP16 before BF16",
                 "layer.*.moe.shared.up",
                 on_nano(),
                 with_kernel({.store = [](float sum) { return static_cast<double>(round_to_fp16(sum)); }})));
  faults.push_back(make_fault("k-28",
                              "the rows of two tokens are exchanged",
                              "layer.*.attn.q_b",
                              on_nano(),
                              with_output([](const TensorView& y, const OpCall&) {
                                return rows_from(y, [](int64_t r) { return r < 2 ? 1 - r : r; });
                              })));
  faults.push_back(make_fault("k-29",
                              "the last tile of 16 columns still holds the row before",
                              "layer.*.mlp.gate",
                              on_nano(),
                              with_output([](const TensorView& y, const OpCall&) {
                                const auto columns = static_cast<size_t>(y.row_len());
                                return edited(y, [columns](Values& values) {
                                  for (size_t row = values.size() / columns; row-- > 1;) {
                                    for (size_t c = columns - 16; c < columns; ++c) {
                                      values[row * columns + c] = values[(row - 1) * columns + c];
                                    }
                                  }
                                });
                              })));
  return faults;
}

}  // namespace tools::faults
