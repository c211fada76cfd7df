// Faults in the latent cache.
#include <algorithm>

#include "reference/numerics/fp8.hpp"
#include "reference/tokens.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// Id of the projection that this layer's cache rows come from.
std::string kv_a_of(const OpCall& call) {
  const int64_t depth = call.op.layer - call.config().num_hidden_layers;
  return (depth < 0 ? "layer." + std::to_string(call.op.layer) : "mtp." + std::to_string(depth) + ".layer") +
         ".attn.kv_a";
}

// The first `columns` columns of every row, starting at `first`.
TensorView columns_of(const TensorView& tensor, int64_t first, int64_t columns) {
  const auto values = model::to_double(tensor);
  Values taken;
  for (int64_t row = 0; row < tensor.num_rows(); ++row) {
    const auto begin = values.begin() + row * tensor.row_len() + first;
    taken.insert(taken.end(), begin, begin + columns);
  }
  return from_values(taken, {tensor.num_rows(), columns}, tensor.dtype);
}

// Rows of the cache after the step that this step wrote.
bool is_new(const OpCall& call, int64_t row) {
  const auto places = reference::token_places(call.workload);
  return std::any_of(
      places.begin(), places.end(), [row](const auto& place) { return place.first_key_row + place.position == row; });
}

}  // namespace

std::vector<Fault> cache_faults() {
  const std::string cache = "cache.*.latent";
  std::vector<Fault> faults;
  faults.push_back(make_fault_with_memory("h-07",
                                          "the latent is cached as projected, without its norm",
                                          cache,
                                          on_nano(),
                                          "*.attn.kv_a",
                                          [](const OpCall& call, const Memory& memory) {
                                            OpCall changed = call;
                                            changed.inputs[0] =
                                                columns_of(memory.at(kv_a_of(call)), 0, call.config().kv_lora_rank);
                                            return reference::run_op(changed);
                                          }));
  faults.push_back(make_fault_with_memory("k-71",
                                          "the rope key is cached before its rotation",
                                          cache,
                                          on_nano(),
                                          "*.attn.kv_a",
                                          [](const OpCall& call, const Memory& memory) {
                                            OpCall changed = call;
                                            changed.inputs[1] = columns_of(memory.at(kv_a_of(call)),
                                                                           call.config().kv_lora_rank,
                                                                           call.config().qk_rope_head_dim);
                                            return reference::run_op(changed);
                                          }));
  faults.push_back(make_fault("k-72",
                              "a decode step leaves the row before in place of its own",
                              cache,
                              on_nano_step(),
                              with_output([](const TensorView& rows, const OpCall& call) {
                                return rows_from(rows, [&](int64_t row) {
                                  return call.workload.num_tokens() == 1 && row > 0 && is_new(call, row) ? row - 1
                                                                                                         : row;
                                });
                              })));
  faults.push_back(make_fault("k-73",
                              "a decode step also writes over the first row",
                              cache,
                              on_nano_step(),
                              with_output([](const TensorView& rows, const OpCall& call) {
                                const int64_t last = rows.num_rows() - 1;
                                return rows_from(rows, [&](int64_t row) {
                                  return row == 0 && call.workload.num_tokens() == 1 ? last : row;
                                });
                              })));
  faults.push_back(make_fault("k-74",
                              "rows behind the first page of 64 go into the page before",
                              cache,
                              {"synthetic:edge", prompt(66)},
                              with_output([](const TensorView& rows, const OpCall&) {
                                return rows_from(
                                    rows, [&](int64_t row) { return row + 64 < rows.num_rows() ? row + 64 : row; });
                              })));
  faults.push_back(make_fault("k-75",
                              "the rope key is written in front of the latent",
                              cache,
                              on_nano(),
                              with_output([](const TensorView& rows, const OpCall& call) {
                                const int64_t rope = call.config().qk_rope_head_dim;
                                return columns_from(
                                    rows, [&](int64_t c) { return c < rope ? rows.row_len() - rope + c : c - rope; });
                              })));
  faults.push_back(make_fault("k-76",
                              "the latent is cached in FP8 without a scale",
                              cache,
                              on_nano(),
                              with_input(0, [](const TensorView& latent, const OpCall&) {
                                return edited(latent, [](Values& values) {
                                  for (double& value : values) {
                                    value = reference::round_to_f8_e4m3(static_cast<float>(value));
                                  }
                                });
                              })));
  return faults;
}

}  // namespace tools::faults
