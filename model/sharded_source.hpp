// The weights that one rank of a layout has: of each tensor the slice that the plan gives it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "model/parallel_plan.hpp"
#include "model/weight_source.hpp"

namespace model {

class ShardedSource : public WeightSource {
 public:
  // Both must outlive this. A tensor that is cut along its columns is copied when it is asked for, all others are views of `whole`.
  ShardedSource(const WeightSource& whole, const ParallelPlan& plan, int64_t rank);

  // Of the whole model.
  [[nodiscard]] const ModelConfig& config() const override { return whole_.config(); }
  // Throws InputError when the rank has no part of it.
  [[nodiscard]] TensorView weight(const std::string& name) const override;
  [[nodiscard]] TensorView rows(const std::string& name, int64_t begin, int64_t end) const override;
  [[nodiscard]] bool keeps_tensors() const override { return whole_.keeps_tensors(); }

  [[nodiscard]] bool has(const std::string& name) const { return slices_.contains(name); }
  // Of the rank's slice, without reading it.
  [[nodiscard]] Shape shape(const std::string& name) const;
  // Of the tensor that it is a slice of.
  [[nodiscard]] const Shape& whole_shape(const std::string& name) const { return part(name).whole_shape; }

 private:
  struct Part {
    Shape whole_shape;
    TensorSlice slice;
  };
  [[nodiscard]] const Part& part(const std::string& name) const;

  const WeightSource& whole_;
  int64_t rank_;
  std::map<std::string, Part> slices_;
};

}  // namespace model
