// Embedding: each token's row of the table.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// Source: V3 report 2.1; ParallelEmbedding in DeepSeek-V3 inference/model.py.
// Rounding: none (BF16 rows as stored); profile fp16: FP16(FP16(row) * stream_unit). Order: no sum.
// inputs: tokens [tokens] I32. Output [tokens, hidden] bf16 (exact: f64). Throws InputError for an id outside the vocabulary.
void embed(const OpCall& call, model::TensorView& result);

// One token's row [1, hidden], as stored. Throws InputError for an id outside the vocabulary.
model::TensorView embedding_row(const model::WeightSource& weights, const model::Op& op, int64_t token);

}  // namespace reference
