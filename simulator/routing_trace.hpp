// Which experts each token chose, layer by layer, as engines and our own inference record it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace simulator {

struct RoutedToken {
  int64_t rank = -1;             // that holds the token; -1: the trace does not say
  std::vector<int64_t> experts;  // in the order of the trace
};

struct TraceLayer {
  int64_t layer_id = 0;
  std::vector<RoutedToken> tokens;
};

struct RoutingTrace {
  std::vector<TraceLayer> layers;  // ascending layer_id
  int64_t largest_expert = 0;
};

// CSV: columns `layer` and `token`, and the choices as one of: `expert` (a row for each choice); `expert_0`, `expert_1`, ... (or
// `id_0`, ...); `experts`, `expert_ids`, `ids` or `topk_ids` (a list separated by spaces or semicolons). `rank` is read; further
// columns (weights, cases, positions) are not. A token is told apart by its layer, rank, case and token number.
// JSON, one response or an array of them (or expert ids [tokens][layers][k] alone):
// - vLLM: `choices[].routed_experts` is base64 of a .npy file, [tokens][layers][k] (docs/features, 2026), or, in releases around 0.21,
//   lists of that shape with `prompt_routed_experts` beside `choices`;
// - SGLang: `meta_info.routed_experts` is base64 of the ids alone, int32 or what `meta_info.routed_experts_dtype` says, with
//   prompt_tokens + completion_tokens - 1 rows of num_hidden_layers x `experts_per_token` (state_capturer/routed_experts.py).
// Both list dense layers too, all zero: a layer whose every choice is expert 0 is left out. Throws InputError naming the file and the
// line or field.
RoutingTrace read_trace(const std::filesystem::path& path, int64_t experts_per_token = 8);

// Copies of each expert: [layers][num_experts]; num_experts 0: the largest id in the trace plus one.
std::vector<std::vector<double>> trace_loads(const RoutingTrace& trace, int64_t num_experts);

}  // namespace simulator
