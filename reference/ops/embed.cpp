#include "reference/ops/embed.hpp"

#include "reference/values.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

model::TensorView embed(const OpCall& call) {
  const MatrixOf fetched(call);
  const WeightMatrix& table = fetched.matrix();
  const auto tokens = call.inputs[0].codes<int32_t>();
  const auto hidden = static_cast<size_t>(table.in_dim());
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    std::vector<T> rows;
    rows.reserve(tokens.size() * hidden);
    std::vector<float> row(hidden);
    for (const int32_t token : tokens) {
      if (token < 0 || token >= table.out_dim()) {
        model::throw_input_error("{}: token id {} is outside the vocabulary of {}", call.op.id, token, table.out_dim());
      }
      table.code_row(token, row);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return store<T>({static_cast<int64_t>(tokens.size()), table.in_dim()}, std::move(rows), model::DType::kBF16);
  });
}

}  // namespace reference
