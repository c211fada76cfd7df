// A deployment as a user says it: a preset, flags, or both, where flags win.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/layout.hpp"
#include "simulator/serving.hpp"

namespace simulator {

struct DeploymentRequest {
  std::string preset = {};
  std::optional<std::string> model = {};
  std::optional<std::string> gpu = {};
  std::optional<std::string> engine = {};
  std::optional<double> prompt_tokens = {};
  std::optional<double> answer_tokens = {};
  double prompt_cv = 0;
  double answer_cv = 0;
  std::string lengths = {};  // a file of them, in place of means and variations
  double prefix_hit = 0;
  std::optional<double> prefill_chunk = {};
  double steps_per_chunk = 1;
  bool prefill_in_turn = false;            // DP ranks prefill one after another, the others wait
  std::optional<double> batch = {};        // of a DP rank
  std::optional<double> concurrency = {};  // of all; in place of batch
  std::optional<std::string> kv_dtype = {};
  std::vector<double> acceptance = {};
  std::optional<int64_t> redundant_experts = {};
  std::optional<AllToAllBackend> all_to_all = {};
  bool eplb = false;
  std::optional<std::string> shared_expert = {};  // "replicated", "sharded", "routed"
  std::optional<int64_t> dense_tp = {};
  std::optional<std::string> skew = {};  // a text of parse_skew()
  std::optional<int64_t> comm_sms = {};  // of HardwareChanges; a preset may say it
  bool two_batch_overlap = false;
  bool no_cuda_graph = false;
  bool early_engine = false;
  bool decode_only = false;
  LayoutRequest layout = {};
  std::optional<LayoutRequest> prefill_layout = {};  // disaggregated
  std::optional<int64_t> workers = {};
  std::optional<int64_t> prefill_workers = {};
  std::optional<double> memory_frac = {};
};

// "gb200-ep32, h100-ep72-decode, ...": simulator/data/presets.json.
std::string preset_names();

// The request with the preset's answers to what it leaves open. Throws InputError for an unknown preset.
DeploymentRequest with_preset(DeploymentRequest request);

// Defaults: deepseek-v3 on h200, tp8, sglang, 4096 prompt and 1024 answer tokens, 32 sequences, BF16 cache. Throws InputError for a
// name, number or layout that cannot be.
Deployment build_deployment(const DeploymentRequest& request);

}  // namespace simulator
