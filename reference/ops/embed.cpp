#include "reference/ops/embed.hpp"

#include "reference/values.hpp"

namespace reference {

model::TensorView embedding_row(const model::WeightSource& weights, const model::Op& op, int64_t token) {
  const int64_t vocab_size = weights.config().vocab_size;
  if (token < 0 || token >= vocab_size) {
    model::throw_input_error("{}: token id {} is outside the vocabulary of {}", op.id, token, vocab_size);
  }
  return weights.rows(op.weights.at(0), token, token + 1);
}

model::TensorView embed(const OpCall& call) {
  const auto tokens = call.inputs[0].codes<int32_t>();
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    std::vector<T> rows;
    rows.reserve(tokens.size() * static_cast<size_t>(call.config().hidden_size));
    for (const int32_t token : tokens) {
      const auto row = load<T>(embedding_row(call.weights, call.op, token));
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return store<T>(
        {static_cast<int64_t>(tokens.size()), call.config().hidden_size}, std::move(rows), model::DType::kBF16);
  });
}

}  // namespace reference
