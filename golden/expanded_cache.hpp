// The cache of the naive form, which holds expanded keys and values in place of the latent. No op of ours makes it, but it is a copy
// that can go wrong: every row is what its step computed, or what an earlier step's dump of the cache held.
#pragma once

#include <string>
#include <vector>

#include "golden/case_values.hpp"
#include "golden/verdict.hpp"

namespace golden {

// Results for cache.L.keys and cache.L.values where the dump holds both; `prefix` names the layer's ops ("layer.3"). Rows that
// nothing in the dump says are passed over.
std::vector<OpResult> judge_expanded_cache(const model::ModelConfig& config,
                                           const CaseValues& values,
                                           int64_t layer,
                                           const std::string& prefix);

}  // namespace golden
