#include "model/sharded_source.hpp"

#include "model/check.hpp"

namespace model {
ShardedSource::ShardedSource(const WeightSource& whole, const ParallelPlan& plan, int64_t rank)
    : whole_(whole), rank_(rank) {
  for (const TensorSlice& slice : plan.slices(rank)) {
    const CatalogTensor& tensor = plan.tensors[static_cast<size_t>(slice.tensor_idx)];
    slices_[tensor.name] = {tensor.shape, slice};
  }
}

const ShardedSource::Part& ShardedSource::part(const std::string& name) const {
  const auto found = slices_.find(name);
  if (found == slices_.end()) {
    throw_input_error("{}: rank {} has no part of it", name, rank_);
  }
  return found->second;
}

Shape ShardedSource::shape(const std::string& name) const {
  const auto& [whole_shape, slice] = part(name);
  Shape shape = whole_shape;
  shape[static_cast<size_t>(slice.dimension)] = slice.range.end - slice.range.begin;
  return shape;
}

TensorView ShardedSource::weight(const std::string& name) const {
  const auto& [whole_shape, slice] = part(name);
  const auto& [begin, end] = slice.range;
  if (end - begin == whole_shape[static_cast<size_t>(slice.dimension)]) {
    return whole_.weight(name);
  }
  return slice.dimension == 0 ? whole_.rows(name, begin, end) : slice_columns(whole_.weight(name), begin, end);
}

TensorView ShardedSource::rows(const std::string& name, int64_t begin, int64_t end) const {
  const auto& [whole_shape, slice] = part(name);
  if (slice.dimension == 0) {
    return whole_.rows(name, slice.range.begin + begin, slice.range.begin + end);
  }
  return slice_columns(whole_.rows(name, begin, end), slice.range.begin, slice.range.end);
}

}  // namespace model
