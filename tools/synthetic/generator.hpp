// A fixture as a source of weights: each tensor is generated when it is first asked for, and kept while there is room.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "model/tensor_catalog.hpp"
#include "model/weight_source.hpp"
#include "tools/synthetic/fixtures.hpp"
#include "tools/synthetic/pool.hpp"

namespace tools::synthetic {

class SyntheticWeights : public model::WeightSource {
 public:
  static constexpr int64_t kDefaultCacheBytes = int64_t{2} << 30;

  // Keeps the tensors asked for last, as many as fit `cache_bytes`, the newest in any case. What a caller holds stays valid.
  SyntheticWeights(Fixture fixture, uint64_t seed, int64_t cache_bytes = kDefaultCacheBytes);

  [[nodiscard]] const model::ModelConfig& config() const override { return fixture_.config; }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override;
  [[nodiscard]] model::TensorView rows(const std::string& name, int64_t begin, int64_t end) const override;
  // Elements [first, first + count) of the tensor, as a tensor [count], without the others.
  [[nodiscard]] model::TensorView part(const std::string& name, int64_t first, int64_t count) const;
  // True if reading every weight of a pass costs little, and hashing them would cost more than the pass.
  [[nodiscard]] bool is_pooled() const { return fixture_.pooled; }
  // Identifies every bit: XXH3-64 of fixture name, seed and generator version, 16 hex digits.
  [[nodiscard]] std::string hash() const;

 private:
  struct Kept {
    std::string name;
    model::TensorView tensor;
  };

  [[nodiscard]] bool is_window(const model::CatalogTensor& tensor) const;
  [[nodiscard]] const model::CatalogTensor& entry(const std::string& name) const;

  Fixture fixture_;
  uint64_t seed_;
  int64_t cache_bytes_;
  WeightPool pool_;
  std::map<std::string, model::CatalogTensor> catalog_;
  std::map<std::string, std::string> weight_of_scale_;
  mutable std::mutex mutex_;
  mutable std::list<Kept> kept_;  // the one asked for last comes first
  mutable std::map<std::string, std::list<Kept>::iterator> kept_by_name_;
  mutable int64_t kept_bytes_ = 0;
};

}  // namespace tools::synthetic
