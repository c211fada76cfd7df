#include "reference/ops/embed.hpp"

#include <algorithm>
#include <type_traits>

#include "reference/residual_stream.hpp"
#include "reference/values.hpp"

namespace reference {

namespace {

void check_token(const model::ModelConfig& config, const model::Op& op, int64_t token) {
  if (token < 0 || token >= config.vocab_size) {
    model::throw_input_error("{}: token id {} is outside the vocabulary of {}", op.id, token, config.vocab_size);
  }
}

}  // namespace

model::TensorView embedding_row(const model::WeightSource& weights, const model::Op& op, int64_t token) {
  check_token(weights.config(), op, token);
  return weights.rows(op.weights.at(0), token, token + 1);
}

namespace {

// The numbers of a token's row as stored: from the table at hand, or fetched alone.
template <typename T>
Reused<T> stored_row(const OpCall& call, int64_t token) {
  if (call.matrix == nullptr) {
    return load<T>(embedding_row(call.weights, call.op, token));
  }
  check_token(call.config(), call.op, token);
  Reused<float> row(static_cast<size_t>(call.matrix->in_dim()));
  call.matrix->row(token, row);
  return Reused<T>(row.begin(), row.end());
}

// A row of the table in the 16-bit format, in the units of the stream.
void to_stream(const OpCall& call, std::span<float> row) {
  round_all_to_half(call.rules.half, row);
  const float unit = output_unit(call.rules, call.config(), call.op);
  std::ranges::for_each(row, [unit](float& value) { value *= unit; });
}

}  // namespace

void embed(const OpCall& call, model::TensorView& result) {
  const auto tokens = call.inputs[0].codes<int32_t>();
  with_arithmetic(call.rules.exact(), [&]<typename T>() {
    Reused<T> rows;
    rows.reserve(tokens.size() * static_cast<size_t>(call.config().hidden_size));
    for (const int32_t token : tokens) {
      auto row = stored_row<T>(call, token);
      if constexpr (std::is_same_v<T, float>) {
        to_stream(call, row);
      }
      rows.insert(rows.end(), row.begin(), row.end());
    }
    store(result, {static_cast<int64_t>(tokens.size()), call.config().hidden_size}, std::move(rows), call.rules.half);
  });
}

}  // namespace reference
