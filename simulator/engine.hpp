// What a serving engine adds to its kernels, as a few constants for each engine, fitted once to published end-to-end measurements.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace simulator {

struct EngineProfile {
  std::string name;
  double stream_factor = 1;       // time of a decode step's kernels in the stream over their time alone
  double host_us = 0;             // of a decode step between graphs: scheduler, sampler, detokeniser
  double prefill_factor = 1;      // the same for prefill, launches and padding included
  double b300_scores_factor = 1;  // attention of a prompt on B300 over what B300's peak promises: a fallback kernel
  double early_blackwell_layer_us = 0;  // a layer of a 2025 release on Blackwell over a later one
  // Standard deviation of log(predicted / measured), as if normal: the 90 % quantile of rows left out of the fit over 1.645.
  double log_spread = 0;
  std::string source = {};
};

// {name: {constant: number, ..., "source": text}}. Throws InputError.
std::vector<EngineProfile> parse_engines(std::string_view json_text, const std::string& origin);
std::string engines_json(const std::vector<EngineProfile>& engines);

// "ideal, sglang, trtllm, vllm".
std::string engine_names();
// Throws InputError.
EngineProfile load_engine(const std::string& name);

}  // namespace simulator
