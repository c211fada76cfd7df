#include "reference/tokens.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace reference {

Reused<TokenPlace> token_places(const model::Workload& workload) {
  Reused<TokenPlace> places;
  places.reserve(static_cast<size_t>(workload.num_tokens()));
  int64_t first_key_row = 0;
  for (const auto& [num_cached, num_new] : workload.sequences) {
    for (int64_t i = 0; i < num_new; ++i) {
      places.push_back({.position = num_cached + i, .first_key_row = first_key_row});
    }
    first_key_row += num_cached + num_new;
  }
  return places;
}

Reused<int64_t> tokens_of_expert(const model::TensorView& topk_ids, int64_t expert) {
  const auto ids = topk_ids.codes<int32_t>();
  const int64_t k = topk_ids.row_len();
  Reused<int64_t> tokens;
  for (int64_t t = 0; t < topk_ids.num_rows(); ++t) {
    const auto row = ids.subspan(static_cast<size_t>(t * k), static_cast<size_t>(k));
    if (std::find(row.begin(), row.end(), static_cast<int32_t>(expert)) != row.end()) {
      tokens.push_back(t);
    }
  }
  return tokens;
}

Reused<Reused<Choice>> choices_of_tokens(const model::TensorView& topk_ids, bool ascending_id) {
  const auto ids = topk_ids.codes<int32_t>();
  const int64_t k = topk_ids.row_len();
  std::map<int64_t, int64_t, std::less<>, ReusingAllocator<std::pair<const int64_t, int64_t>>> next_row;
  Reused<Reused<Choice>> choices(static_cast<size_t>(topk_ids.num_rows()));
  for (size_t t = 0; t < choices.size(); ++t) {
    choices[t].reserve(static_cast<size_t>(k));
    for (int64_t slot = 0; slot < k; ++slot) {
      const int64_t expert = ids[t * static_cast<size_t>(k) + static_cast<size_t>(slot)];
      choices[t].push_back({expert, slot, next_row[expert]++});
    }
    if (ascending_id) {
      std::ranges::sort(choices[t], {}, &Choice::expert);
    }
  }
  return choices;
}

}  // namespace reference
