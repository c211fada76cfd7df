// FP8 weights dequantised to BF16 once, for ops that read them so in every step: kv_b, absorbed. Only as many as a bound on memory
// allows; the others are dequantised when they are read. Whoever reads one gets the same numbers either way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "model/weight_source.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

class HalfWeights {
 public:
  // 16 MiB: all of a small model; of DeepSeek-V3, where they are 2 GB, none.
  static constexpr int64_t kDefaultBytes = int64_t{1} << 24;

  explicit HalfWeights(int64_t max_bytes = kDefaultBytes) : num_bytes_left_(max_bytes) {}

  // The weight `name`, an FP8 matrix: BF16(FP32(code * scale)), made by the first who asks; nothing if there is no room for it.
  [[nodiscard]] std::optional<WeightMatrix> find(const std::string& name, const WeightMatrix& stored);

 private:
  int64_t num_bytes_left_;
  std::map<std::string, WeightMatrix> kept_;
};

}  // namespace reference
