// The decode step whose kernels are counted, and the rows of its table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/op_list.hpp"
#include "tools/bench/kernel_bench.hpp"

namespace tools {

inline constexpr double kWeightBar = 1.05;  // launches that stream weights
inline constexpr double kOtherBar = 1.15;

struct BenchStep {
  explicit BenchStep(const KernelBenchFlags& flags);
  // Costs of the ops that a launch covers, together; of the experts, those that somebody chose.
  [[nodiscard]] model::Op cost(const std::vector<std::string>& ids) const;

  model::ModelConfig config;
  int64_t num_tokens = 0;
  int64_t context_len = 0;
  std::vector<model::Op> ops;
  std::vector<int32_t> expert_ids;  // [num_tokens, k]
  int64_t num_chosen = 0;           // different ones
};

inline int64_t num_scale_blocks(int64_t len) {
  return (len + 127) / 128;
}

KernelRow embed_row(const BenchStep& step);
KernelRow norm_row(const BenchStep& step);
KernelRow rotate_row(const BenchStep& step);
KernelRow cache_row(const BenchStep& step);
KernelRow attention_row(const BenchStep& step);
KernelRow quantize_row(const BenchStep& step);
KernelRow swiglu_row(const BenchStep& step);
KernelRow router_row(const BenchStep& step);
KernelRow combine_row(const BenchStep& step);

}  // namespace tools
