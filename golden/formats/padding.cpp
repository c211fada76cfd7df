#include "golden/formats/padding.hpp"

#include "model/check.hpp"

namespace golden {

std::vector<int64_t> rows_by_position(const std::vector<int64_t>& positions,
                                      int64_t row_len,
                                      Padding padding,
                                      const std::vector<model::SequenceStep>& sequences,
                                      const std::string& origin) {
  const auto num_rows = static_cast<int64_t>(positions.size());
  // One row a sequence, or all sequences one after the other in a single row.
  const bool own_rows = sequences.size() > 1 && num_rows == row_len * static_cast<int64_t>(sequences.size());
  std::vector<int64_t> kept;
  int64_t begin = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto& [num_cached, num_new] = sequences[s];
    const int64_t end = own_rows ? begin + row_len : num_rows;
    int64_t found = -1;
    for (int64_t row = begin; row + num_new <= end && (found < 0 || padding == Padding::kLeft); ++row) {
      int64_t length = 0;
      while (length < num_new && positions[static_cast<size_t>(row + length)] == num_cached + length) {
        ++length;
      }
      found = length == num_new ? row : found;
    }
    if (found < 0) {
      model::throw_input_error("{}: expected {} tokens from position {} on for sequence {}, they are not there",
                               origin,
                               num_new,
                               num_cached,
                               s);
    }
    for (int64_t i = 0; i < num_new; ++i) {
      kept.push_back(found + i);
    }
    begin = own_rows ? end : found + num_new;
  }
  return kept;
}

std::vector<int64_t> rows_by_side(Padding padding,
                                  int64_t num_padded,
                                  const std::vector<model::SequenceStep>& sequences) {
  std::vector<int64_t> kept;
  const auto num_sequences = static_cast<int64_t>(sequences.size());
  const int64_t row_len = num_padded / num_sequences;
  const bool own_rows = padding != Padding::kTail;
  if (own_rows && num_padded % num_sequences != 0) {
    return {};
  }
  for (int64_t s = 0; s < num_sequences; ++s) {
    const int64_t num_new = sequences[static_cast<size_t>(s)].num_new;
    if (own_rows && num_new > row_len) {
      return {};
    }
    const int64_t begin = !own_rows ? static_cast<int64_t>(kept.size())
                                    : s * row_len + (padding == Padding::kLeft ? row_len - num_new : 0);
    for (int64_t i = 0; i < num_new; ++i) {
      kept.push_back(begin + i);
    }
  }
  return static_cast<int64_t>(kept.size()) <= num_padded ? kept : std::vector<int64_t>{};
}

}  // namespace golden
