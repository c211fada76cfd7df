// A deployment under load: how many requests really decode at once, what prefill takes from decode, and the resulting latencies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/lengths.hpp"
#include "simulator/memory_budget.hpp"
#include "simulator/step_model.hpp"

namespace simulator {

struct Workload {
  double prompt_tokens = 4096;  // mean
  double answer_tokens = 1024;  // mean
  double concurrency = 64;      // requests in the system, all GPUs
  LengthShape lengths = {};     // how they vary around their means
  double prefix_hit = 0;        // share of a prompt's tokens that the cache already has
  double prefill_chunk = 0;     // tokens of a DP rank that one step takes in between decodes; 0: a prompt at once
  double steps_per_chunk = 1;   // decode steps for each such chunk
  bool prefill_in_turn =
      false;  // DP ranks of a worker prefill one after another while the others wait; else all at once
  std::vector<double> acceptance = {};  // MTP: chance that draft i is kept, given that those before it were

  [[nodiscard]] double new_prompt_tokens() const { return prompt_tokens * (1 - prefix_hit); }
  // Tokens in the cache of a sequence that decodes, mean over time.
  [[nodiscard]] double mean_kv_len() const;
};

// Tokens of one step and sequence: 1 + p1 + p1 p2 + ...
double tokens_per_step(const std::vector<double>& acceptance);

struct Pool {
  RankLayout rank;
  int64_t workers = 1;

  [[nodiscard]] int64_t num_gpus() const { return workers * rank.layout.num_ranks(); }
};

struct Deployment {
  model::ModelConfig config;
  Hardware hardware;
  EngineProfile engine;
  Pool decode;
  std::optional<Pool> prefill;  // disaggregated; absent: the decode workers prefill between steps
  Workload workload;
  bool decode_only = false;  // prefill is somebody else's, and keeps up
  double memory_frac = 0.92;

  [[nodiscard]] int64_t num_gpus() const { return decode.num_gpus() + (prefill ? prefill->num_gpus() : 0); }
};

enum class Limit { kNone, kMemory, kPrefill };

struct Serving {
  StepCost step;
  StepCost prompt;              // prefill of one prompt
  double decode_sequences = 0;  // of a DP rank, at work on average
  double asked_sequences = 0;   // concurrency over all DP ranks
  double step_ms = 0;
  double stall_ms = 0;                       // of each step, behind prefill on the same GPUs
  double tpot_ms = 0;                        // mean
  double tpot_low_ms = 0, tpot_high_ms = 0;  // 90 %
  double tpot_p50_ms = 0;                    // over requests: how many prefills one meets
  double tpot_p99_ms = 0;
  double ttft_ms = 0;
  double requests_per_s = 0;
  double tokens_per_s_per_gpu = 0;
  double tokens_per_s_per_user = 0;
  double prompt_tokens_per_s_per_gpu = 0;  // that the GPUs that prefill could compute if they did nothing else
  Limit limit = Limit::kNone;              // why fewer sequences decode than asked for
  MemoryBudget memory;                     // of a decode GPU
  std::vector<std::string> notes;          // what the interval is wide for, what starves
};

// Throws InputError: the weights do not fit (with what would), or prefill is impossible.
Serving serve(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves);

// Quantiles over decode steps of their time: every layer draws its own popularity, every step its own tokens.
struct StepSpread {
  double p50_ms = 0;
  double p90_ms = 0;
  double p99_ms = 0;
};

StepSpread step_spread(const Deployment& deployment,
                       const std::vector<ChosenFit>& fits,
                       MoeCurves& curves,
                       const Serving& serving);

}  // namespace simulator
