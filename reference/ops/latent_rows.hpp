// The rows of the latent cache that the sequences of a call have, as numbers: from the cache's pages or from a tensor.
#pragma once

#include "reference/op_call.hpp"
#include "reference/values.hpp"

namespace reference {

// All rows, sequences one after another: [keys, kv_lora + rope]. The cache is the last input of the op, or call.cache.
template <typename T>
Reused<T> latent_rows(const OpCall& call) {
  if (call.cache == nullptr) {
    return load<T>(call.inputs.back());
  }
  Reused<T> rows(static_cast<size_t>(call.workload.num_keys() * call.config().latent_dim()));
  size_t first = 0;
  for (const int64_t sequence : call.cache_sequences) {
    for (const auto run : call.cache->runs(call.op.layer, sequence)) {
      const model::DType dtype = call.cache->dtype();
      const auto count = run.size() / static_cast<size_t>(model::dtype_bytes(dtype));
      load_codes<T>(dtype, run, std::span(rows).subspan(first, count));
      first += count;
    }
  }
  CHECK_EQ(first, rows.size());
  return rows;
}

}  // namespace reference
