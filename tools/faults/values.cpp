// Faults where probabilities meet values, expanded or as latents.
#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/numerics/bf16.hpp"
#include "reference/numerics/fp8.hpp"
#include "reference/values.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// Probabilities as [rows of keys], changed before they meet the values.
FaultyOp with_probs(std::function<void(Values& probs, size_t keys, const OpCall&)> change) {
  return with_input(0, [change = std::move(change)](const TensorView& probs, const OpCall& call) {
    if (call.inputs.size() == 1) {
      return probs;  // absorbed: latents, not probabilities
    }
    return edited(probs, [&](Values& values) { change(values, static_cast<size_t>(probs.shape[2]), call); });
  });
}

// Each chunk of four keys is a softmax of its own; the partial results are averaged.
void merge_chunks_equally(Values& probs, size_t keys, const OpCall&) {
  constexpr size_t kChunk = 4;
  for (size_t row = 0; row < probs.size(); row += keys) {
    std::vector<double> sums;
    for (size_t begin = 0; begin < keys; begin += kChunk) {
      double sum = 0;
      for (size_t key = begin; key < std::min(begin + kChunk, keys); ++key) {
        sum += probs[row + key];
      }
      if (sum > 0) {
        sums.push_back(sum);
      }
    }
    for (size_t key = 0; key < keys; ++key) {
      if (key / kChunk < sums.size()) {
        probs[row + key] /= sums[key / kChunk] * static_cast<double>(sums.size());
      }
    }
  }
}

// From the second merge on, the partial result of the head beside it is added.
void merge_with_wrong_stride(Values& probs, size_t keys, const OpCall& call) {
  constexpr size_t kFirstWrong = 8;
  const auto heads = static_cast<size_t>(call.config().num_attention_heads);
  const Values right = probs;
  for (size_t row = 0; row < probs.size() / keys; ++row) {
    const size_t other = row / heads * heads + (row + 1) % heads;
    for (size_t key = kFirstWrong; key < keys; ++key) {
      probs[row * keys + key] = right[other * keys + key];
    }
  }
}

// 0 * NaN: masked by a product, what lies behind the last key spoils everything.
TensorView all_nan(const TensorView& y, const OpCall&) {
  return edited(
      y, [](Values& values) { std::fill(values.begin(), values.end(), std::numeric_limits<double>::quiet_NaN()); });
}

// Latents as if the rows of the cache, wider by the rope key, were packed without it.
TensorView read_without_pitch(const TensorView& cache, const OpCall& call) {
  const auto latent = static_cast<size_t>(call.config().kv_lora_rank);
  const auto row_len = static_cast<size_t>(cache.row_len());
  const auto flat = model::to_double(cache);
  return edited(cache, [&](Values& values) {
    for (size_t row = 0; row < values.size() / row_len; ++row) {
      std::copy_n(flat.begin() + static_cast<int64_t>(row * latent),
                  latent,
                  values.begin() + static_cast<int64_t>(row * row_len));
    }
  });
}

// Probabilities and running sum in BF16.
TensorView latents_summed_in_bf16(const OpCall& call) {
  const auto probs = reference::load<float>(call.inputs[0]);
  const auto cache = reference::load<float>(call.inputs[1]);
  const auto keys = static_cast<size_t>(call.inputs[0].shape[2]);
  const auto row_len = static_cast<size_t>(call.inputs[1].row_len());
  const auto latent = static_cast<size_t>(call.config().kv_lora_rank);
  return edited(reference::run_op(call), [&](Values& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (size_t key = 0; key < keys; ++key) {
        const float p = reference::round_to_bf16(probs[i / latent * keys + key]);
        sum = reference::round_to_bf16(sum + p * cache[key * row_len + i % latent]);
      }
      values[i] = sum;
    }
  });
}

// kv_b columns of each head: [keys | values] -> [values | keys]; as far as both go.
int64_t other_half(int64_t column, const model::ModelConfig& config) {
  const int64_t nope = config.qk_nope_head_dim;
  const int64_t common = std::min(nope, config.v_head_dim);
  const int64_t i = column % (nope + config.v_head_dim);
  if (i < common) {
    return column + nope;
  }
  return i >= nope && i < nope + common ? column - nope : column;
}

TensorView halves_swapped(const TensorView& kv_b, const OpCall& call) {
  return columns_from(kv_b, [&](int64_t c) { return other_half(c, call.config()); });
}

TensorView with_swapped_kv_b_rows(const OpCall& call) {
  const std::string& name = call.op.weights[0];
  ChangedWeights changed(call.weights);
  changed.exchange(name, rows_from(call.weights.weight(name), [&](int64_t r) { return other_half(r, call.config()); }));
  return run_with(call, changed);
}

}  // namespace

std::vector<Fault> value_faults() {
  const std::string context = "layer.*.attn.context";
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-48",
                              "chunks of keys are merged with equal weight instead of by their sums",
                              context,
                              on_nano(),
                              with_probs(merge_chunks_equally)));
  faults.push_back(make_fault("bb-50",
                              "from the second merge of key chunks on, the partial result is another head's",
                              context,
                              {"synthetic:nano", prompt(12)},
                              with_probs(merge_with_wrong_stride)));
  faults.push_back(make_fault("bb-51",
                              "latents are read as if cache rows held nothing else",
                              "layer.*.attn.o_latent",
                              on_nano_step(),
                              with_input(1, read_without_pitch)));
  faults.push_back(make_fault("bb-53",
                              "a padding slot without keys gives NaN, which a product with 0 keeps",
                              context,
                              {"synthetic:nano", batch_of_two()},
                              with_output([](const TensorView& y, const OpCall&) {
                                const auto row_len = static_cast<size_t>(y.row_len());
                                return edited(y, [row_len](Values& values) {
                                  std::fill(values.end() - static_cast<int64_t>(row_len),
                                            values.end(),
                                            std::numeric_limits<double>::quiet_NaN());
                                });
                              })));
  faults.push_back(make_fault(
      "bb-108", "NaN behind the last key of a page is masked by a product", context, on_nano(), with_output(all_nan)));
  faults.push_back(make_fault("k-57",
                              "probabilities are rounded to FP8",
                              context,
                              on_nano(),
                              with_probs([](Values& probs, size_t, const OpCall&) {
                                for (double& p : probs) {
                                  p = reference::round_to_f8_e4m3(static_cast<float>(p));
                                }
                              })));
  faults.push_back(make_fault("k-58",
                              "probabilities are cut off to BF16",
                              context,
                              on_nano(),
                              with_probs([](Values& probs, size_t, const OpCall&) {
                                std::transform(probs.begin(), probs.end(), probs.begin(), truncated_to_bf16);
                              })));
  faults.push_back(
      make_fault("k-59", "the key half of kv_b is used as values", context, on_nano(), with_input(1, halves_swapped)));
  faults.push_back(make_fault("k-60",
                              "the value half of kv_b is absorbed into the query",
                              "layer.*.attn.q_latent",
                              on_nano_step(),
                              with_swapped_kv_b_rows));
  faults.push_back(make_fault("k-61",
                              "each head takes the values of the head before",
                              context,
                              on_nano(),
                              with_input(1, [](const TensorView& kv_b, const OpCall& call) {
                                const int64_t width = kv_b.row_len() / call.config().num_attention_heads;
                                return columns_from(
                                    kv_b, [&](int64_t c) { return (c + kv_b.row_len() - width) % kv_b.row_len(); });
                              })));
  faults.push_back(make_fault("k-62",
                              "the oldest value is that of the newest key",
                              context,
                              on_nano(),
                              with_input(1, [](const TensorView& kv_b, const OpCall&) {
                                return rows_from(kv_b,
                                                 [&](int64_t row) { return row == 0 ? kv_b.num_rows() - 1 : row; });
                              })));
  faults.push_back(make_fault("k-63",
                              "latents are summed in BF16, key by key",
                              "layer.*.attn.o_latent",
                              on_nano_step(),
                              latents_summed_in_bf16));
  return faults;
}

}  // namespace tools::faults
