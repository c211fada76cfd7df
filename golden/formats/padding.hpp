// Which rows of a padded dump are tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "golden/formats/name_table.hpp"
#include "model/op_list.hpp"

namespace golden {

// Rows of the flattened [sequences, padded] tokens, found by their positions: each sequence's are consecutive numbers from the
// first new one on; where such a run is there twice, `padding` says which one counts (the last with kLeft). Throws InputError that begins with `origin` when a sequence is not there.
std::vector<int64_t> rows_by_position(const std::vector<int64_t>& positions,
                                      int64_t row_len,
                                      Padding padding,
                                      const std::vector<model::SequenceStep>& sequences,
                                      const std::string& origin);

// Likewise, when only the side is known and `num_padded` rows are there. Empty when they cannot be that many.
std::vector<int64_t> rows_by_side(Padding padding,
                                  int64_t num_padded,
                                  const std::vector<model::SequenceStep>& sequences);

}  // namespace golden
