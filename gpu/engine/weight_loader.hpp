// Packs the weights of a checkpoint for the device, once: what lies where, how large it is, and the bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/engine/device_weights.hpp"
#include "gpu/engine/memory_plan.hpp"
#include "gpu/engine/shard.hpp"
#include "model/sharded_source.hpp"

namespace gpu {

class WeightLoader {
 public:
  // `source` and `weights` must outlive this; `half` is the 16-bit format of the kernels. Lists every tensor that the rank has in `plan`.
  // Throws InputError for a tensor stored in a format that the kernels do not read.
  WeightLoader(const model::ShardedSource& source,
               const Shard& shard,
               model::DType half,
               DeviceWeights& weights,
               MemoryPlan& plan);

  using OnProgress = std::function<void(int64_t done_bytes, int64_t all_bytes)>;
  // Uploads everything; the plan is allocated by now. `on_progress` may be null.
  void load(Backend& backend, const OnProgress& on_progress) const;

 private:
  using Bytes = std::vector<std::byte>;
  // One tensor on the device, made of equal parts.
  struct Item {
    std::function<std::byte*()> place;  // after allocation
    int64_t num_parts = 1;
    std::function<Bytes(int64_t part)> pack;
  };

  template <typename T>
  void add(
      T*& pointer, int64_t num_parts, int64_t part_len, const std::string& what, std::function<Bytes(int64_t)> pack);
  void add_norm(half16*& pointer, const std::string& name);
  void add_matrix(half16*& pointer, const std::string& name);
  // A tensor that a checkpoint may leave out: where the source gives the original's bytes and the rank has them, it is not stored twice.
  void add_copy(half16*& pointer, const std::string& name, half16*& original, const std::string& original_name);
  // Matrices below one another in each group: names_of(group). Rows of each and columns are padded with zeros.
  struct Stack {
    std::function<std::vector<std::string>(int64_t group)> names_of;
    int64_t num_groups = 1;
    int64_t padded_rows = 0;  // of each matrix
    int64_t padded_columns = 0;
    int64_t num_sharing = 0;  // ranks that have columns of it; 0: a matrix that is never cut like that
  };
  void add_linear(LinearWeight& linear, const std::string& what, const Stack& stack);
  void add_linear(LinearWeight& linear, const std::string& name, int64_t num_sharing = 0);
  [[nodiscard]] LinearWeight plain_matrix(const std::string& name) const;
  // Of the experts, or of the one that has no number.
  void add_mlp(MlpWeights& mlp,
               int64_t dim,
               const std::string& prefix,
               int64_t num_sharing,
               const std::vector<int64_t>* experts = nullptr);
  void add_absorbed(LayerWeights& layer, const std::string& name);
  void add_layer(LayerWeights& layer, int64_t index);
  void add_mtp(MtpWeights& mtp, int64_t k);

  const model::ShardedSource& source_;
  const model::ModelConfig& config_;
  const Shard& shard_;
  model::DType half_;
  MemoryPlan& plan_;
  DeviceWeights& weights_;
  std::vector<Item> items_;
  std::vector<std::pair<half16**, half16**>> aliases_;  // pointer, and the one it equals
  int64_t all_bytes_ = 0;
};

}  // namespace gpu
