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
// JSON: vLLM's response (`prompt_routed_experts` and `choices[].routed_experts`, each [tokens][layers][k]), or such an array alone.
// Throws InputError naming the file and the line or field.
RoutingTrace read_trace(const std::filesystem::path& path);

// Copies of each expert: [layers][num_experts]; num_experts 0: the largest id in the trace plus one.
std::vector<std::vector<double>> trace_loads(const RoutingTrace& trace, int64_t num_experts);

}  // namespace simulator
