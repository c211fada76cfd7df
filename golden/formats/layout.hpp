// From the layouts of other people's dumps to ours: one row a token, heads after tokens, rotated pairs side by side.
// B sequences of S new tokens, H heads, T keys; a row is a token unless said otherwise.
#pragma once

#include <string>

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
};

// `second` is read by the last three only. Throws InputError that begins with `origin` when a tensor's dtype or rank does not fit
// the layout, or the two do not fit each other.
model::TensorView apply_layout(Layout layout,
                               const model::TensorView& first,
                               const model::TensorView& second,
                               const std::string& origin);

}  // namespace golden
