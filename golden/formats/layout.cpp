#include "golden/formats/layout.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <vector>

#include "model/check.hpp"

namespace golden {
namespace {

using model::DType;
using model::Shape;
using model::TensorView;
using model::throw_input_error;

bool is_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

TensorView flatten_rows(const TensorView& tensor) {
  int64_t num_rows = 1;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    num_rows *= tensor.shape[i];
  }
  return reshape(tensor, {num_rows, tensor.shape.back()});
}

// A new tensor of this shape whose element i is element source_of(i) of the old one.
template <typename SourceOf>
TensorView permute(const TensorView& tensor, Shape shape, SourceOf source_of) {
  const auto width = static_cast<size_t>(model::dtype_bytes(tensor.dtype));
  const int64_t size = model::num_elements(shape);
  auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(size) * width);
  for (int64_t i = 0; i < size; ++i) {
    std::memcpy(bytes->data() + static_cast<size_t>(i) * width,
                tensor.bytes.data() + static_cast<size_t>(source_of(i)) * width,
                width);
  }
  return {tensor.dtype, std::move(shape), *bytes, bytes};
}

// Where element `i` of interleaved pairs comes from in a row of `dim` that holds all first, then all second members.
int64_t half_split_source(int64_t i, int64_t dim) {
  return (i % 2) * (dim / 2) + i / 2;
}

void require_even(int64_t dim, const std::string& origin) {
  if (dim % 2 != 0) {
    throw_input_error("{}: expected rotated pairs, the last extent {} is odd", origin, dim);
  }
}

TensorView interleave_rows(const TensorView& tensor, const std::string& origin) {
  const TensorView rows = flatten_rows(tensor);
  const int64_t dim = rows.shape.back();
  require_even(dim, origin);
  return permute(rows, rows.shape, [&](int64_t i) { return i / dim * dim + half_split_source(i % dim, dim); });
}

TensorView require_rank_4(const TensorView& tensor, const std::string& origin) {
  if (tensor.shape.size() != 4) {
    throw_input_error("{}: expected four extents, got {}", origin, model::shape_text(tensor.shape));
  }
  return tensor;
}

TensorView tokens_first(const TensorView& tensor, bool half_split, const std::string& origin) {
  const Shape& shape = require_rank_4(tensor, origin).shape;
  const int64_t heads = shape[1];
  const int64_t tokens = shape[2];  // of one sequence
  const int64_t dim = shape[3];
  if (half_split) {
    require_even(dim, origin);
  }
  return permute(tensor, {shape[0] * tokens, heads, dim}, [&](int64_t i) {
    const int64_t column = i % dim;
    const int64_t head = i / dim % heads;
    const int64_t token = i / (dim * heads) % tokens;
    const int64_t sequence = i / (dim * heads * tokens);
    const int64_t source_column = half_split ? half_split_source(column, dim) : column;
    return ((sequence * heads + head) * tokens + token) * dim + source_column;
  });
}

TensorView narrow_ids(const TensorView& tensor, const std::string& origin) {
  if (tensor.dtype == DType::kI32) {
    return flatten_rows(tensor);
  }
  std::vector<int32_t> ids;
  for (const int64_t id : tensor.codes<int64_t>()) {
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      throw_input_error("{}: expected ids that fit 32 bits, got {}", origin, id);
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return flatten_rows(model::make_tensor(DType::kI32, tensor.shape, std::move(ids)));
}

TensorView add_as_floats(const TensorView& first, const TensorView& second, const std::string& origin) {
  if (first.shape != second.shape || first.dtype == DType::kF64 || second.dtype == DType::kF64) {
    throw_input_error("{}: expected a pair of one shape in at most F32, got {} {} and {} {}",
                      origin,
                      model::dtype_name(first.dtype),
                      model::shape_text(first.shape),
                      model::dtype_name(second.dtype),
                      model::shape_text(second.shape));
  }
  const std::vector<double> left = to_double(first);
  const std::vector<double> right = to_double(second);
  std::vector<float> sums(left.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] = static_cast<float>(left[i]) + static_cast<float>(right[i]);
  }
  return flatten_rows(model::make_tensor(DType::kF32, first.shape, std::move(sums)));
}

// Rows of the first tensor, each followed by the same row of the second.
TensorView join_rows(const TensorView& first, const TensorView& second, const std::string& origin) {
  if (first.num_rows() != second.num_rows() || first.dtype != second.dtype) {
    throw_input_error("{}: expected two tensors of as many rows and one dtype, got {} {} and {} {}",
                      origin,
                      model::dtype_name(first.dtype),
                      model::shape_text(first.shape),
                      model::dtype_name(second.dtype),
                      model::shape_text(second.shape));
  }
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(first.bytes.size() + second.bytes.size());
  const int64_t num_rows = first.num_rows();
  for (int64_t row = 0; row < num_rows; ++row) {
    for (const TensorView* part : {&first, &second}) {
      const TensorView piece = slice_rows(*part, row, row + 1);
      bytes->insert(bytes->end(), piece.bytes.begin(), piece.bytes.end());
    }
  }
  return {first.dtype, {num_rows, first.shape.back() + second.shape.back()}, *bytes, bytes};
}

void require_readable(const TensorView& tensor, bool ids, const std::string& origin) {
  const bool fits = ids ? tensor.dtype == DType::kI32 || tensor.dtype == DType::kI64 : is_float(tensor.dtype);
  if (!fits) {
    throw_input_error("{}: expected {}, got {}",
                      origin,
                      ids ? "I32 or I64" : "F64, F32, BF16 or F16",
                      model::dtype_name(tensor.dtype));
  }
  if (tensor.shape.size() < 2) {
    throw_input_error("{}: expected [tokens, ...], got {}", origin, model::shape_text(tensor.shape));
  }
}

const std::map<std::string, Layout, std::less<>>& layouts() {
  static const std::map<std::string, Layout, std::less<>> names{
      {"rows", Layout::kRows},
      {"rows_half_split", Layout::kRowsHalfSplit},
      {"ids", Layout::kIds},
      {"heads", Layout::kHeads},
      {"heads_first", Layout::kHeadsFirst},
      {"heads_first_half_split", Layout::kHeadsFirstHalfSplit},
      {"pair_sum", Layout::kPairSum},
      {"join", Layout::kJoin},
      {"join_half_split", Layout::kJoinHalfSplit},
      {"token_heads", Layout::kTokenHeads},
      {"stacked_experts", Layout::kStackedExperts},
      {"expert_slots", Layout::kExpertSlots}};
  return names;
}

}  // namespace

std::optional<Layout> parse_layout(std::string_view name) {
  const auto found = layouts().find(name);
  return found == layouts().end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (const auto& [name, layout] : layouts()) {
    names.push_back(name);
  }
  return names;
}

TensorView slice_last(const TensorView& tensor, int64_t begin, int64_t end, const std::string& origin) {
  const int64_t width = tensor.shape.empty() ? 0 : tensor.shape.back();
  if (begin < 0 || begin >= end || end > width) {
    throw_input_error("{}: the slice [{}, {}) does not lie in the last extent of {}",
                      origin,
                      begin,
                      end,
                      model::shape_text(tensor.shape));
  }
  Shape shape = tensor.shape;
  shape.back() = end - begin;
  return permute(tensor, shape, [&](int64_t i) { return i / (end - begin) * width + begin + i % (end - begin); });
}

TensorView take_rows(const TensorView& tensor, const std::vector<int64_t>& rows) {
  const int64_t width = tensor.row_len();
  Shape shape = tensor.shape;
  shape.front() = static_cast<int64_t>(rows.size());
  return permute(tensor, shape, [&](int64_t i) { return rows[static_cast<size_t>(i / width)] * width + i % width; });
}

TensorView expert_rows(
    Layout layout, const TensorView& tensor, const TensorView& topk_ids, int64_t expert, const std::string& origin) {
  const auto ids = topk_ids.codes<int32_t>();
  std::vector<int64_t> rows;
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    if (ids[slot] == expert) {
      rows.push_back(static_cast<int64_t>(slot));
    }
  }
  require_readable(tensor, false, origin);
  const TensorView flat = flatten_rows(tensor);
  if (layout == Layout::kStackedExperts) {
    const int64_t num_rows = tensor.shape.size() == 3 ? tensor.shape[1] : -1;
    if (num_rows < static_cast<int64_t>(rows.size()) || tensor.num_rows() <= expert) {
      throw_input_error("{}: expected [experts, rows, d] with {} rows for expert {}, got {}",
                        origin,
                        rows.size(),
                        expert,
                        model::shape_text(tensor.shape));
    }
    std::ranges::generate(rows, [next = expert * num_rows]() mutable { return next++; });
  } else if (flat.num_rows() != topk_ids.size()) {
    throw_input_error("{}: expected {} rows, one for each expert of each token, got {}",
                      origin,
                      topk_ids.size(),
                      model::shape_text(tensor.shape));
  }
  return take_rows(flat, rows);
}

TensorView apply_layout(Layout layout, const TensorView& first, const TensorView& second, const std::string& origin) {
  require_readable(first, layout == Layout::kIds, origin);
  if (layout == Layout::kPairSum || layout == Layout::kJoin || layout == Layout::kJoinHalfSplit) {
    require_readable(second, false, origin);
  }
  switch (layout) {
    case Layout::kRows: return flatten_rows(first);
    case Layout::kRowsHalfSplit: return interleave_rows(first, origin);
    case Layout::kIds: return narrow_ids(first, origin);
    case Layout::kHeads: {
      const Shape& shape = require_rank_4(first, origin).shape;
      return reshape(first, {shape[0] * shape[1], shape[2], shape[3]});
    }
    case Layout::kTokenHeads:
      if (first.shape.size() != 3) {
        throw_input_error("{}: expected [tokens, heads, d], got {}", origin, model::shape_text(first.shape));
      }
      return first;
    case Layout::kHeadsFirst: return tokens_first(first, false, origin);
    case Layout::kHeadsFirstHalfSplit: return tokens_first(first, true, origin);
    case Layout::kPairSum: return add_as_floats(first, second, origin);
    case Layout::kJoin: return join_rows(flatten_rows(first), flatten_rows(second), origin);
    case Layout::kJoinHalfSplit: return join_rows(flatten_rows(first), interleave_rows(second, origin), origin);
    case Layout::kStackedExperts:
    case Layout::kExpertSlots: break;  // one tensor for many ops
  }
  model::throw_check_error(__FILE__, __LINE__, "unknown layout");
}

}  // namespace golden
