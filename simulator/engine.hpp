// What a serving engine adds to its kernels, as a few constants for each engine, fitted once to published end-to-end measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "simulator/hardware.hpp"

namespace simulator {

struct EngineProfile {
  std::string name;
  double stream_factor = 1;   // time of a decode step's kernels in the stream over their time alone
  double host_us = 0;         // of a decode step between graphs: scheduler, sampler, detokeniser
  double prefill_factor = 1;  // the same for prefill, launches and padding included
  // Attention of a prompt on B300, a fallback kernel: products take so many times as long as B300's peak promises, and a layer so
  // much more whatever its prompt.
  double b300_scores_factor = 1;
  double b300_scores_us = 0;
  double early_blackwell_layer_us = 0;  // a layer of a 2025 release on Blackwell over a later one
  std::string measured_on = {};         // a hardware file's stem, "blackwell" for its generation, "any"; empty: nowhere
  // Standard deviation of log(predicted / measured), as if normal: the 90 % quantile of rows left out of the fit over 1.645.
  double log_spread = 0;
  std::string source = {};
};

// {name: {constant: number, ..., "measured_on": text, "source": text}}. Throws InputError.
std::vector<EngineProfile> parse_engines(const nlohmann::json& document, const std::string& origin);
std::string engines_json(const std::vector<EngineProfile>& engines);

// "ideal, sglang, trtllm, vllm".
std::string engine_names();
// A name of engine_names(), or a file (*.json) of one engine, as calibrate writes it. Throws InputError.
EngineProfile load_engine(const std::string& name);
// Whether the engine's constants come from measurements on this GPU or its generation.
bool is_measured_on(const EngineProfile& engine, const Hardware& hardware);

}  // namespace simulator
