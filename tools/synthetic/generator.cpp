#include "tools/synthetic/generator.hpp"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "tools/synthetic/calibration.hpp"
#include "tools/synthetic/elements.hpp"

namespace tools::synthetic {
namespace {

int64_t largest_fp8_elements(const Fixture& fixture) {
  int64_t largest = 0;
  for (const auto& tensor : model::tensor_catalog(fixture.config)) {
    largest = tensor.dtype == model::DType::kF8E4M3 ? std::max(largest, model::num_elements(tensor.shape)) : largest;
  }
  return largest;
}

}  // namespace

SyntheticWeights::SyntheticWeights(Fixture fixture, uint64_t seed, int64_t cache_bytes)
    : fixture_(std::move(fixture)),
      seed_(seed),
      cache_bytes_(cache_bytes),
      pool_(seed, fixture_.pooled ? largest_fp8_elements(fixture_) : 0) {
  for (model::CatalogTensor& tensor : model::tensor_catalog(fixture_.config)) {
    if (!tensor.scale.empty()) {
      weight_of_scale_.emplace(tensor.scale, tensor.name);
    }
    std::string name = tensor.name;
    catalog_.emplace(std::move(name), std::move(tensor));
  }
}

const model::CatalogTensor& SyntheticWeights::entry(const std::string& name) const {
  const auto found = catalog_.find(name);
  if (found == catalog_.end()) {
    model::throw_input_error("synthetic:{}: no tensor {}", fixture_.name, model::printable(name));
  }
  return found->second;
}

// Embeddings are drawn: one row of them is read at a time.
bool SyntheticWeights::is_window(const model::CatalogTensor& tensor) const {
  const bool is_matrix = tensor.role == model::TensorRole::kLinear || tensor.role == model::TensorRole::kBf16Linear;
  return fixture_.pooled && is_matrix && kind_of(tensor) != "embed_tokens";
}

model::TensorView SyntheticWeights::rows(const std::string& name, int64_t begin, int64_t end) const {
  const auto& tensor = entry(name);
  const int64_t row_len = model::num_elements(tensor.shape) / tensor.shape.front();
  auto shape = tensor.shape;
  shape.front() = end - begin;
  return model::reshape(part(name, begin * row_len, (end - begin) * row_len), shape);
}

model::TensorView SyntheticWeights::part(const std::string& name, int64_t first, int64_t count) const {
  const auto& tensor = entry(name);
  CHECK(first >= 0 && count >= 0 && first + count <= model::num_elements(tensor.shape));
  const auto view = [&](auto codes) { return model::make_tensor(tensor.dtype, {count}, std::move(codes)); };
  if (is_window(tensor)) {
    return tensor.dtype == model::DType::kF8E4M3
               ? pool_.fp8_codes(tensor, first, count)
               : pool_.bf16_codes(original_name(tensor), distribution_of(tensor, seed_).std, first, count);
  }
  switch (tensor.role) {
    case model::TensorRole::kScale:
      return view(fp8_scales(fixture_, seed_, entry(weight_of_scale_.at(name)), first, count));
    case model::TensorRole::kRouterBias: return view(router_biases(fixture_, seed_, tensor, first, count));
    default:
      return tensor.dtype == model::DType::kF8E4M3 ? view(fp8_codes(fixture_, seed_, tensor, first, count))
                                                   : view(bf16_codes(fixture_, seed_, tensor, first, count));
  }
}

model::TensorView SyntheticWeights::weight(const std::string& name) const {
  const auto& tensor = entry(name);
  if (is_window(tensor) && tensor.dtype == model::DType::kF8E4M3) {
    return model::reshape(part(name, 0, model::num_elements(tensor.shape)), tensor.shape);
  }
  const std::scoped_lock lock(mutex_);
  if (const auto found = kept_by_name_.find(name); found != kept_by_name_.end()) {
    kept_.splice(kept_.begin(), kept_, found->second);
    return kept_.front().tensor;
  }
  kept_.push_front({name, model::reshape(part(name, 0, model::num_elements(tensor.shape)), tensor.shape)});
  kept_by_name_[name] = kept_.begin();
  kept_bytes_ += static_cast<int64_t>(kept_.front().tensor.bytes.size());
  while (kept_bytes_ > cache_bytes_ && kept_.size() > 1) {
    kept_bytes_ -= static_cast<int64_t>(kept_.back().tensor.bytes.size());
    kept_by_name_.erase(kept_.back().name);
    kept_.pop_back();
  }
  return kept_.front().tensor;
}

std::string SyntheticWeights::hash() const {
  const std::string text = fmt::format(
      "synthetic:{}?seed={}&version={}{}", fixture_.name, seed_, kGeneratorVersion, fixture_.pooled ? "&pooled" : "");
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace tools::synthetic
