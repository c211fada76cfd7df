#include "reference/ops/cache_latent.hpp"

#include <algorithm>

#include "reference/quantize.hpp"
#include "reference/values.hpp"

namespace reference {

namespace {

bool keeps_form(const Rules& rules) {
  return rules.cache == CacheRule::kBf16 || rules.exact();
}

// c through the FP8 form of the cache. [tokens, kv_lora]
model::TensorView fp8_form(const OpCall& call) {
  const model::TensorView& latent = call.inputs[0];
  model::TensorView cached;
  auto values = load<float>(latent);
  const auto row_len = static_cast<size_t>(latent.row_len());
  for (size_t begin = 0; begin < values.size(); begin += row_len) {
    round_trip_fp8_cache(std::span(values).subspan(begin, row_len), call.rules.half);
  }
  store(cached, latent.shape, std::move(values), call.rules.half);
  return cached;
}

// The new rows behind those that each sequence has in the cache.
void append_in_place(const OpCall& call, const model::TensorView& latent) {
  const model::TensorView& k_rope = call.inputs[1];
  const auto latent_bytes = static_cast<size_t>(latent.row_len() * model::dtype_bytes(latent.dtype));
  const auto rope_bytes = static_cast<size_t>(k_rope.row_len() * model::dtype_bytes(k_rope.dtype));
  CHECK_EQ(call.cache_sequences.size(), call.workload.sequences.size());
  size_t token = 0;
  for (size_t s = 0; s < call.cache_sequences.size(); ++s) {
    const auto& [num_cached, num_new] = call.workload.sequences[s];
    CHECK_EQ(call.cache->num_rows(call.op.layer, call.cache_sequences[s]), num_cached);
    for (int64_t i = 0; i < num_new; ++i, ++token) {
      const auto row =
          call.cache->append(call.op.layer, call.cache_sequences[s], latent.dtype, latent.row_len() + k_rope.row_len());
      std::ranges::copy(latent.bytes.subspan(token * latent_bytes, latent_bytes), row.begin());
      std::ranges::copy(k_rope.bytes.subspan(token * rope_bytes, rope_bytes),
                        row.begin() + latent.row_len() * model::dtype_bytes(latent.dtype));
    }
  }
  CHECK_EQ(token, static_cast<size_t>(latent.num_rows()));
}

}  // namespace

void cache_latent(const OpCall& call, model::TensorView& result) {
  const model::TensorView rounded = keeps_form(call.rules) ? model::TensorView() : fp8_form(call);
  const model::TensorView& latent = keeps_form(call.rules) ? call.inputs[0] : rounded;
  const model::TensorView& k_rope = call.inputs[1];
  const model::TensorView& before = call.inputs[2];
  CHECK(latent.dtype == k_rope.dtype);
  if (call.cache != nullptr) {
    append_in_place(call, latent);
    return;
  }
  CHECK(before.bytes.empty() || before.dtype == latent.dtype);
  const auto element_bytes = model::dtype_bytes(latent.dtype);
  const auto latent_bytes = static_cast<size_t>(latent.row_len() * element_bytes);
  const auto rope_bytes = static_cast<size_t>(k_rope.row_len() * element_bytes);
  const size_t row_bytes = latent_bytes + rope_bytes;

  auto rows = std::make_shared<std::vector<std::byte>>();
  rows->reserve(static_cast<size_t>(call.workload.num_keys()) * row_bytes);
  const auto append = [&rows](std::span<const std::byte> bytes) {
    rows->insert(rows->end(), bytes.begin(), bytes.end());
  };
  size_t old_row = 0;
  size_t token = 0;
  for (const auto& [num_cached, num_new] : call.workload.sequences) {
    const size_t old_bytes = static_cast<size_t>(num_cached) * row_bytes;
    CHECK(old_row * row_bytes + old_bytes <= before.bytes.size());
    append(before.bytes.subspan(old_row * row_bytes, old_bytes));
    old_row += static_cast<size_t>(num_cached);
    for (int64_t i = 0; i < num_new; ++i, ++token) {
      append(latent.bytes.subspan(token * latent_bytes, latent_bytes));
      append(k_rope.bytes.subspan(token * rope_bytes, rope_bytes));
    }
  }
  CHECK_EQ(token, static_cast<size_t>(latent.num_rows()));
  result = {latent.dtype, {call.workload.num_keys(), latent.row_len() + k_rope.row_len()}, *rows, rows};
}

}  // namespace reference
