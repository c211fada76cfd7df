// The step whose kernels are measured, and the rows of its table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/op_list.hpp"
#include "tools/bench/kernel_bench.hpp"

namespace tools {

struct BenchStep {
  BenchStep(const KernelBenchFlags& flags, int64_t vocab_size);
  // A row with the costs of these ops together; of the experts, those that somebody chose. Without ids it has none yet.
  [[nodiscard]] KernelRow row(const std::string& op,
                              const std::string& shape,
                              const std::vector<std::string>& ids = {}) const;
  [[nodiscard]] bool is_prefill() const { return preset == KernelPreset::kPrefill; }
  // What a launch may move, over the least: launches of decode that stream weights, and others.
  [[nodiscard]] double weight_bar() const { return is_prefill() ? 0 : 1.05; }
  [[nodiscard]] double other_bar() const { return is_prefill() ? 0 : 1.15; }

  model::ModelConfig config;
  KernelPreset preset = KernelPreset::kDecode;
  int64_t num_tokens = 0;
  int64_t context_len = 0;
  int64_t num_head_rows = 0;  // tokens whose logits are wanted
  std::vector<model::Op> ops;
  std::vector<int32_t> expert_ids;  // [num_tokens, k]
  int64_t num_chosen = 0;           // different ones
};

inline int64_t num_scale_blocks(int64_t len) {
  return (len + 127) / 128;
}

struct LinearShape {
  int64_t out_dim = 0;
  int64_t in_dim = 0;
};

// One launch, or the few that make up one op of the engine, measured.
KernelRow embed_row(const BenchStep& step, KernelMeter& meter);
KernelRow norm_row(const BenchStep& step, KernelMeter& meter);
KernelRow rotate_row(const BenchStep& step, KernelMeter& meter);
KernelRow cache_row(const BenchStep& step, KernelMeter& meter);
KernelRow absorbed_row(const BenchStep& step, KernelMeter& meter);  // scheduler, attention and combine
KernelRow gather_row(const BenchStep& step, KernelMeter& meter);
KernelRow expanded_row(const BenchStep& step, KernelMeter& meter);
KernelRow quantize_row(const BenchStep& step, KernelMeter& meter);
KernelRow swiglu_row(const BenchStep& step, KernelMeter& meter);
KernelRow router_row(const BenchStep& step, KernelMeter& meter);
KernelRow align_row(const BenchStep& step, KernelMeter& meter);
KernelRow expert_swiglu_row(const BenchStep& step, KernelMeter& meter);
KernelRow combine_row(const BenchStep& step, KernelMeter& meter);
KernelRow sampler_row(const BenchStep& step, KernelMeter& meter);

KernelRow fp8_row(const BenchStep& step,
                  KernelMeter& meter,
                  const std::string& op,
                  const std::vector<std::string>& ids,
                  const LinearShape& shape);
// `batches` products side by side: one a head, or a single one whose output is FP32.
KernelRow bf16_row(const BenchStep& step,
                   KernelMeter& meter,
                   const std::string& op,
                   const std::string& id,
                   int64_t batches,
                   const LinearShape& shape,
                   int64_t num_rows);
// The experts' linears, gathering tokens or on their own rows.
KernelRow expert_row(const BenchStep& step,
                     KernelMeter& meter,
                     const std::string& op,
                     const std::vector<std::string>& ids,
                     const LinearShape& shape,
                     bool gathers);

}  // namespace tools
