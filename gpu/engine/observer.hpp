// Shows a probe what a step computes, op by op, under the names and shapes of the op list; and takes the time of launches.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpu/engine/backend.hpp"
#include "gpu/engine/latent_cache.hpp"
#include "gpu/engine/shard.hpp"
#include "gpu/portable/types.hpp"
#include "model/op_list.hpp"
#include "model/probe.hpp"

namespace gpu {

// The launches that compute an op, or several that one kernel fuses: named by the one that gives them their cost.
struct OpTime {
  std::string op;
  double start_us = 0;  // since the engine was made
  double time_us = 0;
};

// One sequence's share of a step.
struct StepSequence {
  int64_t num_cached = 0;  // its positions before the new ones
  int64_t num_new = 0;
  bool prefills = false;                // else it decodes: at most StepLimits::max_decode_rows new tokens
  std::span<const int32_t> pages = {};  // of its positions, the new ones included
};

// What an expert computed for one token.
struct ExpertRow {
  int32_t token = 0;
  const half16* data = nullptr;
};

class Observer {
 public:
  // Shows what the rank has of each op (model::is_cut_over_tensor_ranks).
  Observer(Backend& backend, const Shard& shard) : backend_(backend), shard_(shard), half_(backend.half()) {}

  // Who is shown the next step; either may be null. The workload is the step's, as the op list takes it.
  void enter_step(const model::ModelConfig& config,
                  const model::Workload& workload,
                  std::span<const StepSequence> sequences,
                  model::Probe* probe,
                  std::vector<OpTime>* times);
  void leave_step();

  [[nodiscard]] bool has_probe() const { return probe_ != nullptr; }
  [[nodiscard]] bool wants(const std::string& id) const;
  // Shows rows of the device: those of the op's shape, `row_stride` elements apart (0: one behind the other).
  template <typename T>
  void show(const std::string& id, const T* data, int64_t row_stride = 0) {
    show_bytes(id, reinterpret_cast<const std::byte*>(data), row_stride * int64_t{sizeof(T)}, dtype_of(data));
  }
  // A value that was put together on the host.
  void show(const std::string& id, const model::TensorView& value);
  // The rope keys that the step wrote into the cache, and all rows of its sequences.
  void show_cache(const std::string& layer, const std::string& cache_id, const LatentCache& cache, size_t index);
  // The part of a grouped op that one expert has, by ascending token; nothing without rows.
  void show_expert(const std::string& id, int64_t expert, std::vector<ExpertRow> rows);
  // The FP32 sum of two tensors: the residual stream, which the device keeps as a pair. [num_rows, row_len]
  [[nodiscard]] model::TensorView sum(const half16* a, const half16* b, int64_t num_rows, int64_t row_len);
  // [num_rows, row_len], rows row_stride elements apart.
  [[nodiscard]] model::TensorView download(const half16* data,
                                           int64_t num_rows,
                                           int64_t row_len,
                                           int64_t row_stride = 0);
  [[nodiscard]] std::vector<int32_t> download(const int32_t* data, int64_t count);

  // Runs launches as the named op.
  template <typename Launches>
  void run(const char* layer, const char* op, const Launches& launches) {
    backend_.enter_op(layer, op);
    if (times_ == nullptr) {
      launches();
    } else {
      time(std::string(layer) + op, launches);
    }
    backend_.leave_op();
  }

 private:
  model::DType dtype_of(const half16*) const { return half_; }
  model::DType dtype_of(const float*) const { return model::DType::kF32; }
  model::DType dtype_of(const int32_t*) const { return model::DType::kI32; }

  [[nodiscard]] model::TensorView download_bytes(const std::byte* data,
                                                 int64_t stride_bytes,
                                                 model::DType,
                                                 model::Shape shape);
  void show_bytes(const std::string& id, const std::byte* data, int64_t stride_bytes, model::DType dtype);
  void time(const std::string& id, const std::function<void()>& launches);

  Backend& backend_;
  const Shard& shard_;
  model::DType half_;  // what half16 is
  model::Probe* probe_ = nullptr;
  std::vector<OpTime>* times_ = nullptr;
  const model::ModelConfig* config_ = nullptr;
  std::map<std::string, model::Op> ops_;
  std::span<const StepSequence> sequences_;
  std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();
};

}  // namespace gpu
