// The latent cache: for every position the normed c and the rotated shared key, 576 values a token in V3.
#pragma once

#include "reference/op_call.hpp"

namespace reference {

// Source: V3 report 2.1.1; kv_cache and pe_cache in DeepSeek-V3.2-Exp inference/model.py.
// Rounding: none (BF16 as computed), or c through the FP8 form by rules.cache. Order: no sum.
// inputs: kv_a_norm [tokens, kv_lora], k_rope [tokens, rope], the cache before the step (empty view if nothing is cached).
// Output [keys, kv_lora + rope]: the rows of every sequence, old then new, sequences one after another. With call.cache the new
// rows are appended there, what is there stays in place, and the output is an empty view.
void cache_latent(const OpCall& call, model::TensorView& result);

}  // namespace reference
