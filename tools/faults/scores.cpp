// Faults in attention scores and their softmax.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/tokens.hpp"
#include "tools/faults/change.hpp"

namespace tools::faults {
namespace {

// The right probabilities of one token and head over its visible keys, changed. The rest of the row is what is not seen.
FaultyOp with_prob_rows(std::function<void(std::span<double> row, size_t num_visible)> change) {
  return with_output([change = std::move(change)](const TensorView& probs, const OpCall& call) {
    const auto places = reference::token_places(call.workload);
    const auto keys = static_cast<size_t>(probs.shape[2]);
    const auto heads = static_cast<size_t>(probs.shape[1]);
    return edited(probs, [&](Values& values) {
      for (size_t row = 0; row < values.size() / keys; ++row) {
        change(std::span<double>(values).subspan(row * keys, keys),
               static_cast<size_t>(places[row / heads].num_visible()));
      }
    });
  });
}

void renormalise(std::span<double> row) {
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& p : row) {
    p /= sum;
  }
}

// Attention as if every token stood `shift` positions later: what it sees moves, and the columns of the output stay.
FaultyOp with_visible_keys(int64_t shift) {
  return [shift](const OpCall& call) {
    const auto places = reference::token_places(call.workload);
    const TensorView right = reference::run_op(call);
    Values probs(static_cast<size_t>(right.size()));
    const int64_t row_len = right.row_len();
    for (size_t t = 0; t < places.size(); ++t) {
      const int64_t first = places[t].first_key_row;
      const int64_t num_keys = call.inputs.back().num_rows() - first;
      const int64_t visible =
          std::clamp<int64_t>(places[t].num_visible() + shift, 1, std::min(num_keys, right.shape[2]));
      // The token alone, at the end of a sequence that holds what it is to see.
      model::Workload alone = call.workload;
      alone.sequences = {{.num_cached = visible - 1, .num_new = 1}};
      OpCall one{.rules = call.rules,
                 .workload = alone,
                 .weights = call.weights,
                 .op = call.op,
                 .num_threads = call.num_threads};
      const auto token = static_cast<int64_t>(t);
      one.inputs = {model::slice_rows(call.inputs[0], token, token + 1),
                    model::slice_rows(call.inputs[1], token, token + 1)};
      for (size_t i = 2; i < call.inputs.size(); ++i) {
        one.inputs.push_back(model::slice_rows(call.inputs[i], first, first + visible));
      }
      const auto seen = model::to_double(reference::run_op(one));
      for (int64_t head = 0; head < right.shape[1]; ++head) {
        std::copy_n(seen.begin() + head * visible, visible, probs.begin() + token * row_len + head * right.shape[2]);
      }
    }
    return from_values(probs, right.shape, right.dtype);
  };
}

// The token of each row sees the keys of the first sequence too. Its own sequence's part of the row is kept.
TensorView sees_the_first_sequence(const OpCall& call) {
  OpCall joined = call;
  model::Workload one_sequence = call.workload;
  one_sequence.sequences = {{.num_cached = 0, .num_new = call.workload.num_tokens()}};
  OpCall whole{.rules = call.rules,
               .workload = one_sequence,
               .weights = call.weights,
               .op = call.op,
               .inputs = call.inputs,
               .num_threads = call.num_threads};
  const auto seen = model::to_double(reference::run_op(whole));
  const auto places = reference::token_places(call.workload);
  return edited(reference::run_op(call), [&](Values& probs) {
    const auto keys = static_cast<size_t>(call.workload.max_keys());
    const auto all_keys = static_cast<size_t>(call.workload.num_keys());
    const auto heads = static_cast<size_t>(call.config().num_attention_heads);
    for (size_t row = 0; row < probs.size() / keys; ++row) {
      const auto& place = places[row / heads];
      for (size_t key = 0; key < static_cast<size_t>(place.num_visible()); ++key) {
        probs[row * keys + key] = seen[row * all_keys + static_cast<size_t>(place.first_key_row) + key];
      }
    }
  });
}

// Query vectors of the head beside it. Columns [tokens, heads * width].
FaultyOp with_next_heads_query() {
  return with_input(0, [](const TensorView& q, const OpCall& call) {
    const int64_t width = q.row_len() / call.config().num_attention_heads;
    return columns_from(q, [&](int64_t c) { return (c + width) % q.row_len(); });
  });
}

// The cache is the last input of either form.
FaultyOp with_cache(std::function<TensorView(const TensorView&)> change) {
  return [change = std::move(change)](const OpCall& call) {
    OpCall changed = call;
    changed.inputs.back() = change(call.inputs.back());
    return reference::run_op(changed);
  };
}

void all_dim_times(model::ModelConfig& config, double factor) {
  if (config.yarn) {
    config.yarn->mscale_all_dim *= factor;
  }
}

}  // namespace

std::vector<Fault> score_faults() {
  const std::string probs = "layer.*.attn.probs";
  std::vector<Fault> faults;
  faults.push_back(make_fault("bb-18",
                              "the softmax scale lacks mscale squared",
                              probs,
                              on_nano_step(),
                              with_config([](model::ModelConfig& config) { all_dim_times(config, 0); })));
  faults.push_back(make_fault("bb-19",
                              "the softmax scale is made from mscale instead of mscale_all_dim",
                              probs,
                              on_notv3(),
                              with_config([](model::ModelConfig& config) {
                                if (config.yarn) {
                                  config.yarn->mscale_all_dim = config.yarn->mscale;
                                }
                              })));
  faults.push_back(make_fault("bb-21",
                              "the logarithm's multiplier of 0.1 is applied twice",
                              probs,
                              on_nano(),
                              with_config([](model::ModelConfig& config) { all_dim_times(config, 0.1); })));
  faults.push_back(make_fault(
      "bb-56",
      "the offset of a cache row wraps, here after 8 rows",
      probs,
      {"synthetic:nano", prompt(12)},
      with_cache([](const TensorView& cache) { return rows_from(cache, [](int64_t row) { return row % 8; }); })));
  faults.push_back(make_fault("h-09",
                              "scores are divided by the root of the head dimension and nothing else",
                              probs,
                              on_ragged(),
                              with_config([](model::ModelConfig& config) { all_dim_times(config, 0); })));
  faults.push_back(make_fault("h-45",
                              "scores use the rotated parts only",
                              probs,
                              on_nano(),
                              with_input(0, [](const TensorView& q, const OpCall&) { return scaled(q, 0); })));
  faults.push_back(make_fault("k-48", "a token sees the next key", probs, on_nano(), with_visible_keys(1)));
  faults.push_back(
      make_fault("k-49", "a token does not see its own key", probs, on_nano_step(), with_visible_keys(-1)));
  faults.push_back(make_fault("k-50",
                              "the keys of the sequence before are visible",
                              probs,
                              {"synthetic:nano", batch_of_two()},
                              sees_the_first_sequence));
  faults.push_back(make_fault(
      "k-51", "the query of the next head meets the keys of this one", probs, on_nano(), with_next_heads_query()));
  faults.push_back(make_fault("k-52",
                              "keys after the first 64 are read from the page before",
                              probs,
                              {"synthetic:edge", prompt(66)},
                              with_cache([](const TensorView& cache) {
                                return rows_from(cache, [](int64_t row) { return row < 64 ? row : row - 64; });
                              })));
  faults.push_back(make_fault("k-53",
                              "powers of 2 in place of e, the factor log2(e) forgotten",
                              probs,
                              on_nano(),
                              with_prob_rows([](std::span<double> row, size_t num_visible) {
                                for (double& p : row.first(num_visible)) {
                                  p = std::pow(p, std::log(2.0));
                                }
                                renormalise(row);
                              })));
  faults.push_back(make_fault("k-54",
                              "the last key is missing in the denominator",
                              probs,
                              on_nano(),
                              with_prob_rows([](std::span<double> row, size_t num_visible) {
                                const double last = num_visible > 1 ? row[num_visible - 1] : 0;
                                for (double& p : row) {
                                  p /= 1 - last;
                                }
                              })));
  faults.push_back(make_fault("k-55",
                              "the first key is not seen once the row has two",
                              probs,
                              on_nano_step(),
                              with_prob_rows([](std::span<double> row, size_t num_visible) {
                                if (num_visible > 1) {
                                  row[0] = 0;
                                  renormalise(row);
                                }
                              })));
  faults.push_back(make_fault("k-56",
                              "the query's rotated part is that of the token before",
                              probs,
                              on_nano(),
                              with_input(1, [](const TensorView& q_rope, const OpCall&) {
                                return rows_from(q_rope, [](int64_t t) { return std::max<int64_t>(t - 1, 0); });
                              })));
  return faults;
}

}  // namespace tools::faults
