// Time of one dispatch or combine among the ranks of an expert-parallel group: a fixed part, and the bytes that the busiest rank
// sends or receives on each tier of links. The constants are fitted to published tables; docs/skew.md has them with their errors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/hardware.hpp"

namespace simulator {

enum class AllToAllBackend {
  kDeepEpLowLatencyPerCopy,  // DeepEP low latency as first published: one message for each chosen expert
  kDeepEpLowLatency,         // after its per-node deduplication
  kDeepEpNormal,             // one copy a node over the network, forwarded over NVLink
  kDeepEpV2,
  kNvlinkOneSided,  // TensorRT-LLM, inside one NVLink domain
  kNvlinkTwoSided,
  kAllGatherReduceScatter,  // every rank gets every token
};

enum class NetworkLink { kInfiniBand, kRoce };

// "deepep-ll-percopy", "deepep-ll", "deepep-normal", "deepep-v2", "nvlink-one-sided", "nvlink-two-sided", "allgather".
std::string_view backend_name(AllToAllBackend backend);
// Throws InputError with the names.
AllToAllBackend parse_backend(std::string_view name);

}  // namespace simulator
