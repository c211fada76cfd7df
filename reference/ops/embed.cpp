#include "reference/ops/embed.hpp"

#include <algorithm>
#include <type_traits>

#include "reference/residual_stream.hpp"
#include "reference/values.hpp"

namespace reference {

model::TensorView embedding_row(const model::WeightSource& weights, const model::Op& op, int64_t token) {
  const int64_t vocab_size = weights.config().vocab_size;
  if (token < 0 || token >= vocab_size) {
    model::throw_input_error("{}: token id {} is outside the vocabulary of {}", op.id, token, vocab_size);
  }
  return weights.rows(op.weights.at(0), token, token + 1);
}

namespace {

// A row of the table in the 16-bit format, in the units of the stream.
void to_stream(const OpCall& call, std::vector<float>& row) {
  round_all_to_half(call.rules.half, row);
  const float unit = output_unit(call.rules, call.config(), call.op);
  std::ranges::for_each(row, [unit](float& value) { value *= unit; });
}

}  // namespace

model::TensorView embed(const OpCall& call) {
  const auto tokens = call.inputs[0].codes<int32_t>();
  return with_arithmetic(call.rules.exact(), [&]<typename T>() {
    std::vector<T> rows;
    rows.reserve(tokens.size() * static_cast<size_t>(call.config().hidden_size));
    for (const int32_t token : tokens) {
      auto row = load<T>(embedding_row(call.weights, call.op, token));
      if constexpr (std::is_same_v<T, float>) {
        to_stream(call, row);
      }
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return store<T>({static_cast<int64_t>(tokens.size()), call.config().hidden_size}, std::move(rows), call.rules.half);
  });
}

}  // namespace reference
