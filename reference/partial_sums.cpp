#include "reference/partial_sums.hpp"

#include "reference/numerics/reduce.hpp"

namespace reference {

int64_t partial_sums_of(const Rules& rules, const model::Op& op, const WeightMatrix& weight) {
  if (rules.partial_sums == 1) {
    return 1;
  }
  const bool is_shared = op.kind == model::OpKind::kLinear &&
                         (op.id.ends_with(".o_proj") || op.id.ends_with(".ffn") || op.id.ends_with(".moe.shared"));
  const int64_t parts = rules.partial_sums;
  const int64_t unit = weight.is_fp8() ? kBlockLen : 1;
  return is_shared && !rules.exact() && weight.in_dim() % (parts * unit) == 0 ? parts : 1;
}

Rules rules_of_part(Rules whole) {
  whole.partial_sums = 1;
  return whole;
}

model::TensorView ColumnPart::weight(const std::string& name) const {
  const model::TensorView whole = whole_.weight(name);
  return name.ends_with("_scale_inv") ? model::slice_columns(whole, begin_ / kBlockLen, end_ / kBlockLen)
                                      : model::slice_columns(whole, begin_, end_);
}

}  // namespace reference
