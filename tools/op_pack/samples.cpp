#include "tools/op_pack/samples.hpp"

#include <algorithm>
#include <numeric>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/reduce.hpp"
#include "tools/synthetic/deviates.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::op_pack {
namespace {

using synthetic::Draws;

uint16_t bf16_code(double value) {
  return reference::encode_bf16(static_cast<float>(value));
}

}  // namespace

model::TensorView Samples::activations(const std::string& name, const model::Shape& shape, double std) const {
  Draws draws(seed_, name);
  const auto deviates = synthetic::normal_deviates();
  const int64_t size = model::num_elements(shape);
  const int64_t row_len = shape.back();
  const int64_t num_zeros = std::min<int64_t>(reference::kBlockLen, row_len / 2);
  std::vector<uint16_t> codes(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) {
    const int64_t col = i % row_len;
    const bool is_outlier = col == std::min<int64_t>(17, row_len - 1) || col == row_len - 5;
    const bool is_zero = i >= size - row_len && col < num_zeros;
    const double value = deviates[draws.bits(i)] * std * (is_outlier ? kOutlierFactor : 1);
    codes[static_cast<size_t>(i)] = is_zero ? 0 : bf16_code(value);
  }
  return model::make_tensor(model::DType::kBF16, shape, std::move(codes));
}

model::TensorView Samples::bf16_weight(const std::string& name,
                                       const model::Shape& shape,
                                       double mean,
                                       double std) const {
  Draws draws(seed_, name);
  const auto deviates = synthetic::normal_deviates();
  std::vector<uint16_t> codes(static_cast<size_t>(model::num_elements(shape)));
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = bf16_code(mean + std * deviates[draws.bits(static_cast<int64_t>(i))]);
  }
  return model::make_tensor(model::DType::kBF16, shape, std::move(codes));
}

model::TensorView Samples::fp8_weight(const std::string& name, const model::Shape& shape) const {
  Draws draws(seed_, name);
  const auto table = synthetic::normal_codes();
  std::vector<uint8_t> codes(static_cast<size_t>(model::num_elements(shape)));
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = table[draws.bits(static_cast<int64_t>(i))];
  }
  return model::make_tensor(model::DType::kF8E4M3, shape, std::move(codes));
}

model::TensorView Samples::fp8_scales(const std::string& name, const model::Shape& shape, double std) const {
  const auto blocks = [](int64_t dim) { return (dim + reference::kBlockLen - 1) / reference::kBlockLen; };
  const model::Shape scale_shape{blocks(shape[0]), blocks(shape[1])};
  const double mean_scale = std / synthetic::normal_code_std();
  auto scales = uniform(name, model::num_elements(scale_shape), 0.4 * mean_scale, 1.6 * mean_scale);
  return model::make_tensor(model::DType::kF32, scale_shape, std::move(scales));
}

std::vector<float> Samples::uniform(const std::string& name, int64_t count, double low, double high) const {
  Draws draws(seed_, name);
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(low + (high - low) * draws.uniform(i));
  }
  return values;
}

model::TensorView Samples::distinct_ids(const std::string& name, int64_t rows, int64_t k, int64_t count) const {
  Draws draws(seed_, name);
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<std::pair<uint16_t, int32_t>> order;
    for (int64_t id = 0; id < count; ++id) {
      order.emplace_back(draws.bits(row * count + id), static_cast<int32_t>(id));
    }
    std::sort(order.begin(), order.end());
    for (int64_t slot = 0; slot < k; ++slot) {
      ids.push_back(order[static_cast<size_t>(slot)].second);
    }
  }
  return model::make_tensor(model::DType::kI32, {rows, k}, std::move(ids));
}

}  // namespace tools::op_pack
