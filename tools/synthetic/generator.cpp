#include "tools/synthetic/generator.hpp"

#include <xxhash.h>

#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "tools/synthetic/elements.hpp"

namespace tools::synthetic {

SyntheticWeights::SyntheticWeights(Fixture fixture, uint64_t seed, int64_t cache_bytes)
    : fixture_(std::move(fixture)), seed_(seed), cache_bytes_(cache_bytes) {
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

model::TensorView SyntheticWeights::part(const std::string& name, int64_t first, int64_t count) const {
  const auto& tensor = entry(name);
  CHECK(first >= 0 && count >= 0 && first + count <= model::num_elements(tensor.shape));
  const auto view = [&](auto codes) { return model::make_tensor(tensor.dtype, {count}, std::move(codes)); };
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
  const std::string text = fmt::format("synthetic:{}?seed={}&version={}", fixture_.name, seed_, kGeneratorVersion);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace tools::synthetic
