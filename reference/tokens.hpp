// Where each token of a flattened step sits: its sequence, its position, and where its sequence's rows start in the cache.
#pragma once

#include <cstdint>
#include <span>

#include "model/op_list.hpp"
#include "model/tensor_view.hpp"
#include "reference/reused.hpp"

namespace reference {

struct TokenPlace {
  int64_t position = 0;       // in its sequence
  int64_t first_key_row = 0;  // row of the sequence's position 0 in the concatenated cache
  [[nodiscard]] int64_t num_visible() const { return position + 1; }  // causal: keys 0..position
};

// [num_tokens]
Reused<TokenPlace> token_places(const model::Workload& workload);

// Tokens that chose `expert`, ascending. topk_ids [tokens, k] I32.
Reused<int64_t> tokens_of_expert(const model::TensorView& topk_ids, int64_t expert);

// One choice of a token: which expert, from which slot of topk_ids, and which of the expert's gathered rows is the token's.
struct Choice {
  int64_t expert = 0;
  int64_t slot = 0;
  int64_t row = 0;
};

// The rank of an expert where `num_ranks` share them in order, evenly or with the floor rule of model/parallel_plan.
inline int64_t rank_of_expert(int64_t expert, int64_t num_experts, int64_t num_ranks) {
  return ((expert + 1) * num_ranks - 1) / num_experts;
}

// The choices of every token, in slot order or in ascending expert id. [tokens][k]
Reused<Reused<Choice>> choices_of_tokens(const model::TensorView& topk_ids, bool ascending_id);

}  // namespace reference
