// Linears that tensor-parallel ranks compute together: each has a share of K, and the parts are added.
#pragma once

#include <cstdint>
#include <string>

#include "model/op_list.hpp"
#include "model/weight_source.hpp"
#include "reference/rules.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

// Into how many parts a linear's K is cut under Rules::partial_sums: 1 for linears that ranks do not share, and where K does not divide
// (into whole 128-blocks, for FP8). Source: the row-parallel layers of DeepSeek-V3 inference/model.py; model/parallel_plan.cpp.
int64_t partial_sums_of(const Rules& rules, const model::Op& op, const WeightMatrix& weight);

// The rules that each part follows.
Rules rules_of_part(Rules whole);

// Weights of which a rank has columns [begin, end), and of scales the blocks of these.
class ColumnPart : public model::WeightSource {
 public:
  ColumnPart(const model::WeightSource& whole, int64_t begin, int64_t end) : whole_(whole), begin_(begin), end_(end) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return whole_.config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override;

 private:
  const model::WeightSource& whole_;
  int64_t begin_;
  int64_t end_;
};

}  // namespace reference
