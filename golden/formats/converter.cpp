#include "golden/formats/converter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "golden/formats/map_file.hpp"
#include "golden/formats/padding.hpp"
#include "golden/little_endian.hpp"

namespace golden {
namespace {

using model::TensorView;

// Our name for a foreign name's numbers; empty when the row does not mean them.
std::string our_name(const NameRow& row, std::vector<std::string> numbers, const model::ModelConfig& config) {
  if (!row.shift.empty() && !numbers.empty() && numbers[0].size() < 10) {
    const int64_t number = shifted(std::stoll(numbers[0]), row, config);
    if (number < 0) {
      return "";
    }
    numbers[0] = std::to_string(number);
  }
  std::string name;
  size_t next = 0;
  for (const char c : row.ours) {
    name += c == '#' ? numbers.at(next++) : std::string(1, c);
  }
  return name;
}

// Serving engines compute the logits of each sequence's last token only; they are of no use where a dump needs other rows.
bool other_logits(const Case& which, const std::string& id, const TensorView& tensor) {
  const auto num_sequences = static_cast<int64_t>(which.sequences.size());
  const int64_t num_rows = tensor.num_rows();
  return id == "logits" && num_rows == num_sequences && num_rows != which.num_tokens() &&
         num_rows != static_cast<int64_t>(which.rows.size());
}

}  // namespace

SplitName split_numbers(std::string_view name) {
  SplitName result;
  while (true) {
    const std::string_view part = name.substr(0, name.find('.'));
    const size_t num_digits = std::min(part.find_first_not_of("0123456789"), part.size());
    const std::string_view rest = part.substr(num_digits);
    if (num_digits > 0 && (rest.empty() || rest.front() == '[')) {
      result.numbers.emplace_back(part.substr(0, num_digits));
      result.pattern += '#';
      result.pattern += rest;
    } else {
      result.pattern += part;
    }
    if (part.size() == name.size()) {
      return result;
    }
    result.pattern += '.';
    name.remove_prefix(part.size() + 1);
  }
}

void Converter::convert(const Case& which, const CaseTensors& tensors) {
  const CaseOps ops(config_, cases_, which);
  CaseView view{.which = which, .ops = ops, .tensors = tensors};
  find_padding(view);
  for (const NameRow& row : map_.rows) {
    const auto found = tensors.find(row.foreign);
    if (found == tensors.end()) {
      continue;
    }
    for (const auto& [numbers, first] : found->second) {
      if (row.layout == Layout::kStackedExperts || row.layout == Layout::kExpertSlots) {
        convert_experts(view, row, numbers, first);
      } else {
        convert_one(view, row, numbers, first);
      }
    }
  }
}

std::string Converter::origin_of(const std::string& name) const {
  return fmt::format("{}: tensor {}", path_, printable(name));
}

void Converter::find_padding(CaseView& view) {
  const NamedTensor* positions_tensor = nullptr;
  for (const std::string& candidate : map_.positions) {
    const SplitName split = split_numbers(candidate);
    const auto found = view.tensors.find(split.pattern);
    if (positions_tensor == nullptr && found != view.tensors.end() && found->second.contains(split.numbers)) {
      positions_tensor = &found->second.at(split.numbers);
    }
  }
  if (positions_tensor == nullptr) {
    return;
  }
  const auto& [name, tensor] = *positions_tensor;
  const std::string origin = origin_of(name);
  const bool integers = tensor.dtype == model::DType::kI64 || tensor.dtype == model::DType::kI32;
  if (!integers || tensor.shape.empty()) {
    model::throw_input_error("{}: expected positions, I32 or I64, got {} {}",
                             origin,
                             model::dtype_name(tensor.dtype),
                             model::shape_text(tensor.shape));
  }
  std::vector<int64_t> positions;
  if (tensor.dtype == model::DType::kI64) {
    positions.assign(tensor.codes<int64_t>().begin(), tensor.codes<int64_t>().end());
  } else {
    positions.assign(tensor.codes<int32_t>().begin(), tensor.codes<int32_t>().end());
  }
  if (is_shard_ && tensor.size() < view.which.num_tokens()) {
    return;  // the tokens of a DP rank
  }
  view.num_padded = tensor.size();
  view.kept_rows =
      rows_by_position(positions, tensor.shape.back(), map_.padding, sequence_steps(cases_, view.which), origin);
  used_.insert(name);
}

TensorView Converter::without_padding(const CaseView& view, const TensorView& tensor) const {
  const int64_t num_rows = tensor.num_rows();
  if (num_rows == view.num_padded) {
    return take_rows(tensor, view.kept_rows);
  }
  if (view.num_padded == 0 && map_.padding != Padding::kNone && num_rows > view.which.num_tokens()) {
    const auto kept = rows_by_side(map_.padding, num_rows, sequence_steps(cases_, view.which));
    return kept.empty() ? tensor : take_rows(tensor, kept);
  }
  return tensor;
}

TensorView Converter::sliced(const NameRow& row, const TensorView& tensor, const std::string& origin) const {
  if (row.slice_end.empty()) {
    return tensor;
  }
  const int64_t extent = tensor.shape.empty() ? 0 : tensor.shape.back();
  const int64_t begin = slice_bound(row.slice_begin, extent, config_, origin);
  return slice_last(tensor, begin, slice_bound(row.slice_end, extent, config_, origin), origin);
}

void Converter::convert_one(const CaseView& view,
                            const NameRow& row,
                            const std::vector<std::string>& numbers,
                            const NamedTensor& first) {
  const std::string id = our_name(row, numbers, config_);
  const std::string name = view.which.name + "/" + id;
  const model::Op* op = view.ops.find(id);
  if (op == nullptr || converted_.contains(name)) {
    return;
  }
  NamedTensor second;
  if (!row.second.empty()) {
    const auto others = view.tensors.find(row.second);
    if (others == view.tensors.end() || !others->second.contains(numbers)) {
      return;
    }
    second = others->second.at(numbers);
  }
  const std::string origin = origin_of(first.first);
  TensorView ours = apply_layout(row.layout, sliced(row, first.second, origin), second.second, origin);
  // What has a row for each cached position or each choice of an expert is not padded as tokens are.
  if (op->num_parts == 1 && !id.starts_with("cache.") && !id.ends_with(".kv_b")) {
    ours = without_padding(view, ours);
  }
  if (!is_shard_ && other_logits(view.which, id, ours)) {
    return;
  }
  converted_.emplace(name, is_shard_ ? ours : view.ops.checked(id, *op, ours, origin));
  used_.insert(first.first);
  if (!row.second.empty()) {
    used_.insert(second.first);
  }
}

void Converter::convert_experts(const CaseView& view,
                                const NameRow& row,
                                const std::vector<std::string>& numbers,
                                const NamedTensor& first) {
  const std::string pattern = our_name(row, numbers, config_);
  const size_t star = pattern.find(".expert.*");
  const auto topk = converted_.find(view.which.name + "/" + pattern.substr(0, star) + ".topk_ids");
  if (star == std::string::npos || topk == converted_.end()) {
    return;  // whose rows these are is not known
  }
  const std::string origin = origin_of(first.first);
  TensorView all = sliced(row, first.second, origin);
  if (row.layout == Layout::kExpertSlots && all.shape.size() == 3) {
    all = without_padding(view, all);
  }
  for (int64_t expert = 0; expert < config_.n_routed_experts; ++expert) {
    std::string id = pattern;
    id.replace(id.find('*'), 1, std::to_string(expert));
    const std::string name = view.which.name + "/" + id;
    const model::Op* op = view.ops.find(id);
    const TensorView ours = expert_rows(row.layout, all, topk->second, expert, origin);
    if (op == nullptr || ours.num_rows() == 0 || converted_.contains(name)) {
      continue;
    }
    converted_.emplace(name, view.ops.checked(id, *op, ours, origin));
    used_.insert(first.first);
  }
}

}  // namespace golden
