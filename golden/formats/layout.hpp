// From the layouts of other people's dumps to ours: one row a token, heads after tokens, rotated pairs side by side.
// B sequences of S new tokens, H heads, T keys; a row is a token unless said otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor_view.hpp"

namespace golden {

enum class Layout {
  kRows,                 // [..., d] -> [rows, d]
  kRowsHalfSplit,        // the same; the row holds first halves, then second halves of the pairs
  kIds,                  // [..., k] I32 or I64 -> [rows, k] I32
  kHeads,                // [B, S, H, d] -> [B*S, H, d]
  kHeadsFirst,           // [B, H, S, d] -> [B*S, H, d]
  kHeadsFirstHalfSplit,  // the same; d in halves
  kPairSum,              // [..., d] and [..., d] -> [rows, d] F32, their sum as floats
  kJoin,                 // [..., c] and [..., r] -> [rows, c + r]
  kJoinHalfSplit,        // the same; r in halves
  kTokenHeads,           // [rows, H, d], as it is
  kStackedExperts,       // [E, rows, d]: the rows of an expert's tokens, ascending, then padding; see expert_rows()
  kExpertSlots,          // [tokens, k, d] or [tokens * k, d]: a row for each slot of topk_ids; see expert_rows()
};

// The name of a layout in a map file: "heads_first" for kHeadsFirst. Empty when there is none of that name.
std::optional<Layout> parse_layout(std::string_view name);
std::vector<std::string> layout_names();

// `second` is read by pair_sum and the joins only. Throws InputError that begins with `origin` when a tensor's dtype or rank does not fit
// the layout, or the two do not fit each other.
model::TensorView apply_layout(Layout layout,
                               const model::TensorView& first,
                               const model::TensorView& second,
                               const std::string& origin);

// Columns [begin, end) of the last extent, copied.
model::TensorView slice_last(const model::TensorView& tensor, int64_t begin, int64_t end, const std::string& origin);

// Rows of the first extent in this order, copied.
model::TensorView take_rows(const model::TensorView& tensor, const std::vector<int64_t>& rows);

// The rows of one expert, in the order of its tokens, out of a tensor that holds all experts. topk_ids is ours: [tokens, k] I32.
model::TensorView expert_rows(Layout layout,
                              const model::TensorView& tensor,
                              const model::TensorView& topk_ids,
                              int64_t expert,
                              const std::string& origin);

}  // namespace golden
