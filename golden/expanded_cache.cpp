#include "golden/expanded_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

namespace golden {
namespace {

using model::TensorView;

// Elements [begin, begin + len) of a row, as bytes.
std::span<const std::byte> part(const TensorView& tensor, int64_t row, int64_t begin, int64_t len) {
  const auto width = static_cast<size_t>(model::dtype_bytes(tensor.dtype));
  return model::slice_rows(tensor, row, row + 1)
      .bytes.subspan(static_cast<size_t>(begin) * width, static_cast<size_t>(len) * width);
}

// One position of one sequence, as some step knows it: the tensors that hold it, and the row in each.
struct KnownRow {
  const TensorView* kv_b = nullptr;  // null: not computed in that step
  const TensorView* k_rope = nullptr;
  const TensorView* keys = nullptr;
  const TensorView* values = nullptr;
  int64_t kv_b_row = 0;
  int64_t token = 0;
  int64_t key_row = 0;
};

class ExpandedCache {
 public:
  ExpandedCache(const model::ModelConfig& config, const CaseValues& values, int64_t layer, const std::string& prefix)
      : config_(config), values_(values), cache_("cache." + std::to_string(layer)), prefix_(prefix) {}

  std::vector<OpResult> judge() const {
    const auto* keys = values_.find(cache_ + ".keys");
    const auto* cached_values = values_.find(cache_ + ".values");
    if (keys == nullptr || cached_values == nullptr || keys->num_rows() != values_.workload().num_keys() ||
        cached_values->num_rows() != keys->num_rows()) {
      return {};
    }
    std::vector<OpResult> results;
    for (const bool is_keys : {true, false}) {
      results.push_back({.case_name = values_.step().name,
                         .op = cache_ + (is_keys ? ".keys" : ".values"),
                         .status = OpStatus::kSame});
      judge_rows(is_keys ? *keys : *cached_values, is_keys, results.back());
    }
    return results;
  }

 private:
  void judge_rows(const TensorView& got, bool is_keys, OpResult& result) const {
    int64_t row = 0;
    const auto& sequences = values_.workload().sequences;
    for (size_t s = 0; s < sequences.size(); ++s) {
      for (int64_t i = 0; i < sequences[s].num_cached + sequences[s].num_new; ++i, ++row) {
        const auto known = find_row(s, i);
        if (known && !row_matches(got, row, *known, is_keys, result)) {
          return;
        }
      }
    }
  }

  // Position i of sequence s from the step that computed it, or from an earlier dump of the cache.
  [[nodiscard]] std::optional<KnownRow> find_row(size_t s, int64_t i) const {
    for (const CaseValues* step = &values_; step != nullptr; step = step->earlier()) {
      int64_t token = 0;
      int64_t key = 0;
      const auto& sequences = step->workload().sequences;
      for (size_t before = 0; before < s; ++before) {
        token += sequences[before].num_new;
        key += sequences[before].num_cached + sequences[before].num_new;
      }
      const auto* kv_b = step->find(prefix_ + ".attn.kv_b");
      const auto* k_rope = step->find(prefix_ + ".attn.k_rope");
      const int64_t new_idx = i - sequences[s].num_cached;
      if (new_idx >= 0 && kv_b != nullptr && k_rope != nullptr) {
        const bool only_new = kv_b->num_rows() == step->workload().num_tokens();
        return KnownRow{
            .kv_b = kv_b, .k_rope = k_rope, .kv_b_row = only_new ? token + new_idx : key + i, .token = token + new_idx};
      }
      const auto* keys = step->find(cache_ + ".keys");
      const auto* cached_values = step->find(cache_ + ".values");
      if (step != &values_ && keys != nullptr && cached_values != nullptr) {
        return KnownRow{.keys = keys, .values = cached_values, .key_row = key + i};
      }
      if (new_idx >= 0) {
        break;  // nobody before knows it
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] bool row_matches(
      const TensorView& got, int64_t row, const KnownRow& known, bool is_keys, OpResult& result) const {
    const int64_t nope = config_.qk_nope_head_dim;
    const int64_t rope = config_.qk_rope_head_dim;
    const int64_t v = config_.v_head_dim;
    for (int64_t head = 0; head < config_.num_attention_heads; ++head) {
      const int64_t in_kv_b = head * (nope + v);
      const auto equal = [&](int64_t begin, int64_t len, const TensorView& from, int64_t from_row, int64_t from_begin) {
        return from.dtype != got.dtype || same_elements(got, row, begin, len, from, from_row, from_begin, result);
      };
      const int64_t width = is_keys ? nope + rope : v;
      if (known.kv_b == nullptr) {
        if (!equal(head * width, width, is_keys ? *known.keys : *known.values, known.key_row, head * width)) {
          return false;
        }
      } else if (is_keys) {
        if (!equal(head * width, nope, *known.kv_b, known.kv_b_row, in_kv_b) ||
            !equal(head * width + nope, rope, *known.k_rope, known.token, 0)) {
          return false;
        }
      } else if (!equal(head * width, v, *known.kv_b, known.kv_b_row, in_kv_b + nope)) {
        return false;
      }
    }
    return true;
  }

  // Writes down the first element that differs.
  [[nodiscard]] bool same_elements(const TensorView& got,
                                   int64_t row,
                                   int64_t begin,
                                   int64_t len,
                                   const TensorView& from,
                                   int64_t from_row,
                                   int64_t from_begin,
                                   OpResult& result) const {
    if (std::ranges::equal(part(got, row, begin, len), part(from, from_row, from_begin, len))) {
      return true;
    }
    const auto row_values = model::to_double(model::slice_rows(got, row, row + 1));
    const auto right_values = model::to_double(model::slice_rows(from, from_row, from_row + 1));
    int64_t i = 0;
    while (i + 1 < len &&
           row_values[static_cast<size_t>(begin + i)] == right_values[static_cast<size_t>(from_begin + i)]) {
      ++i;
    }
    const int64_t width = got.shape.back();
    result.status = OpStatus::kDiverged;
    result.divergence = Divergence{.op = result.op,
                                   .case_name = result.case_name,
                                   .token = row,
                                   .coordinate = {row, (begin + i) / width, (begin + i) % width},
                                   .got = row_values[static_cast<size_t>(begin + i)],
                                   .expected = right_values[static_cast<size_t>(from_begin + i)],
                                   .reads = {prefix_ + ".attn.kv_b", prefix_ + ".attn.k_rope"},
                                   .reason = fmt::format("row {} is not what was cached", row)};
    return false;
  }

  const model::ModelConfig& config_;
  const CaseValues& values_;
  std::string cache_;
  std::string prefix_;
};

}  // namespace

std::vector<OpResult> judge_expanded_cache(const model::ModelConfig& config,
                                           const CaseValues& values,
                                           int64_t layer,
                                           const std::string& prefix) {
  return ExpandedCache(config, values, layer, prefix).judge();
}

}  // namespace golden
