// Faults in the weights of a linear and their scales.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/numerics/fp8.hpp"
#include "tools/faults/fp8_linear.hpp"

namespace tools::faults {
namespace {

TensorView ones(const TensorView& scale) {
  return edited(scale, [](Values& values) { values.assign(values.size(), 1.0); });
}

// Byte codes of an FP8 weight, changed.
TensorView recoded(const TensorView& weight, const std::function<void(std::span<uint8_t>, size_t row_len)>& change) {
  if (weight.dtype != model::DType::kF8E4M3) {
    return weight;
  }
  const auto codes = weight.codes<uint8_t>();
  std::vector<uint8_t> changed(codes.begin(), codes.end());
  change(changed, static_cast<size_t>(weight.row_len()));
  return model::make_tensor(weight.dtype, weight.shape, std::move(changed));
}

// The weight is laid out for 16x16 tiles of a matrix unit, and then read as if it were row-major.
TensorView tiled(const TensorView& weight) {
  constexpr size_t kTile = 16;
  if (weight.dtype != model::DType::kF8E4M3 || weight.num_rows() % 16 != 0 || weight.row_len() % 16 != 0) {
    return weight;
  }
  const auto codes = weight.codes<uint8_t>();
  std::vector<uint8_t> packed;
  const auto row_len = static_cast<size_t>(weight.row_len());
  for (size_t row = 0; row < codes.size() / row_len; row += kTile) {
    for (size_t column = 0; column < row_len; column += kTile) {
      for (size_t i = 0; i < kTile * kTile; ++i) {
        packed.push_back(codes[(row + i / kTile) * row_len + column + i % kTile]);
      }
    }
  }
  return model::make_tensor(weight.dtype, weight.shape, std::move(packed));
}

TensorView halved_without_minus_zero(const OpCall& call) {
  const std::string& name = call.op.weights.back();
  if (call.weights.weight(name).dtype != model::DType::kF8E4M3) {
    return reference::run_op(call);
  }
  ChangedWeights changed(call.weights);
  changed.exchange(name, recoded(call.weights.weight(name), [](std::span<uint8_t> codes, size_t) {
                     for (uint8_t& code : codes) {
                       code = code == 0x80 ? 0x7F : code;
                     }
                   }));
  changed.exchange(name + "_scale_inv", scaled(call.weights.weight(name + "_scale_inv"), 0.5));
  return run_with(call, changed);
}

FaultyOp with_weight_scale(std::function<float(const reference::WeightMatrix&, int64_t, int64_t)> scale) {
  return with_kernel({.weight_scale = std::move(scale)});
}

}  // namespace

std::vector<Fault> scale_faults() {
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-31",
                              "scale blocks are as long as the rows divided by their number, 100 instead of 128",
                              "layer.*.attn.kv_a",
                              on_ragged(),
                              with_weight_scale([](const reference::WeightMatrix& weight, int64_t n, int64_t block) {
                                const int64_t num_blocks = (weight.out_dim() + 127) / 128;
                                const int64_t rows = weight.out_dim() / num_blocks;
                                return weight.scale(std::min(n / rows, num_blocks - 1) * 128, block);
                              })));
  faults.push_back(make_fault(
      "bb-33", "FP8 codes are used as weights, without their scales", "layer.*.mlp.up", on_nano(), with_scale(ones)));
  faults.push_back(make_fault(
      "bb-40", "E4M3FN bytes are read as E4M3FNUZ", "layer.*.attn.q_b", on_nano(), halved_without_minus_zero));
  faults.push_back(make_fault("bb-44",
                              "kv_b is repacked for a matrix unit, then dequantised for absorption as if it were not",
                              "layer.*.attn.q_latent",
                              on_nano_step(),
                              with_weight(tiled)));
  faults.push_back(make_fault("bb-106",
                              "weight scales are rounded up to a power of two, the weights are not requantised",
                              "layer.*.moe.expert.*.up",
                              on_nano(),
                              with_scale([](const TensorView& scale) {
                                return edited(scale, [](Values& values) {
                                  for (double& value : values) {
                                    value = reference::round_up_to_power_of_two(static_cast<float>(value));
                                  }
                                });
                              })));
  faults.push_back(make_fault("k-01",
                              "the output projection of layer 1 uses each weight block with the next block's scale",
                              "layer.1.attn.o_proj",
                              on_ragged(),
                              with_scale([](const TensorView& scale) {
                                return columns_from(scale, [&](int64_t c) { return (c + 1) % scale.row_len(); });
                              })));
  faults.push_back(make_fault("k-14",
                              "each weight block is used with the scale of the block before",
                              "layer.*.attn.kv_a",
                              on_nano(),
                              with_scale([](const TensorView& scale) {
                                return columns_from(scale, [](int64_t c) { return std::max<int64_t>(c - 1, 0); });
                              })));
  faults.push_back(make_fault("k-15",
                              "the mantissas of the weight scales are cut off to BF16",
                              "layer.*.moe.shared",
                              on_nano(),
                              with_scale([](const TensorView& scale) {
                                return edited(scale, [](Values& values) {
                                  for (double& value : values) {
                                    value = truncated_to_bf16(value);
                                  }
                                });
                              })));
  faults.push_back(make_fault("k-16",
                              "the ragged last rows use the scale of the row block before",
                              "layer.*.attn.kv_a",
                              on_nano(),
                              with_weight_scale([](const reference::WeightMatrix& weight, int64_t n, int64_t block) {
                                return weight.scale(std::clamp<int64_t>(weight.out_dim() / 128 * 128 - 1, 0, n), block);
                              })));
  faults.push_back(make_fault("k-17",
                              "the grid of scales is read column by column",
                              "layer.0.mlp.gate",
                              on_nano(),
                              with_weight_scale([](const reference::WeightMatrix& weight, int64_t n, int64_t block) {
                                const int64_t num_rows = (weight.out_dim() + 127) / 128;
                                const int64_t num_columns = (weight.in_dim() + 127) / 128;
                                const int64_t flat = block * num_rows + n / 128;
                                return weight.scale(flat / num_columns * 128, flat % num_columns);
                              })));
  faults.push_back(make_fault("k-18",
                              "two neighbouring weights of every row are swapped",
                              "layer.*.attn.q_a",
                              on_nano(),
                              with_weight([](const TensorView& weight) {
                                return columns_from(weight, [](int64_t c) { return c == 6 ? 7 : c == 7 ? 6 : c; });
                              })));
  faults.push_back(make_fault("k-19",
                              "two neighbouring output rows of the weight are swapped",
                              "layer.*.attn.o_proj",
                              on_nano(),
                              with_weight([](const TensorView& weight) {
                                return rows_from(weight, [](int64_t r) { return r == 4 ? 5 : r == 5 ? 4 : r; });
                              })));
  faults.push_back(make_fault("k-20",
                              "the sign bit of one weight is lost",
                              "layer.*.attn.kv_b",
                              on_nano(),
                              with_weight([](const TensorView& weight) {
                                return recoded(weight, [](std::span<uint8_t> codes, size_t) {
                                  const auto negative =
                                      std::find_if(codes.begin(), codes.end(), [](uint8_t c) { return c > 0xC0; });
                                  *negative &= 0x7F;
                                });
                              })));
  return faults;
}

}  // namespace tools::faults
