#include "reference/transformer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "reference/tokens.hpp"

namespace reference {
namespace {

// Values of one step, each dropped after the op that reads it last.
class Values {
 public:
  explicit Values(const std::vector<model::Op>& ops) {
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const std::string& input : ops[i].inputs) {
        last_reader_[input] = i;
      }
    }
  }

  void set(const std::string& id, model::TensorView value) { values_[id] = std::move(value); }
  void set_parts(const std::string& id, std::vector<model::TensorView> parts) { parts_[id] = std::move(parts); }

  [[nodiscard]] model::TensorView get(const std::string& id) const {
    const auto found = values_.find(id);
    return found == values_.end() ? model::TensorView{} : found->second;
  }
  [[nodiscard]] const std::vector<model::TensorView>* parts(const std::string& id) const {
    const auto found = parts_.find(id);
    return found == parts_.end() ? nullptr : &found->second;
  }

  void drop_inputs_of(const model::Op& op, size_t op_idx) {
    for (const std::string& input : op.inputs) {
      if (last_reader_.at(input) == op_idx) {
        values_.erase(input);
        parts_.erase(input);
      }
    }
  }

 private:
  std::map<std::string, size_t> last_reader_;
  std::map<std::string, model::TensorView> values_;
  std::map<std::string, std::vector<model::TensorView>> parts_;  // of grouped ops, by expert
};

bool is_cache(const std::string& id) {
  return id.starts_with("cache.");
}

// The numbers in the cache of the sequences of a step.
std::vector<int64_t> numbered_sequences(const StepInput& input) {
  std::vector<int64_t> numbers = input.cache_sequences;
  for (size_t s = 0; input.cache_sequences.empty() && s < input.workload.sequences.size(); ++s) {
    numbers.push_back(static_cast<int64_t>(s));
  }
  CHECK_EQ(numbers.size(), input.workload.sequences.size());
  return numbers;
}

// Puts a whole tensor [keys, row_len], as cache_latent returns it without a cache, in place of a layer's rows.
void replace_rows(LatentCache& cache,
                  const model::Op& op,
                  const model::Workload& workload,
                  std::span<const int64_t> sequences,
                  const model::TensorView& rows) {
  int64_t next = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto& [num_cached, num_new] = workload.sequences[s];
    cache.assign(op.layer, sequences[s], model::slice_rows(rows, next, next + num_cached + num_new));
    next += num_cached + num_new;
  }
}

}  // namespace

Transformer::Transformer(const model::WeightSource& weights, Rules rules, int num_threads, RunOp run)
    : weights_(weights), rules_(rules), num_threads_(num_threads), run_(std::move(run)) {
  const model::Workload one_token{.sequences = {{.num_cached = 0, .num_new = 1}},
                                  .num_mtp_layers = config().num_nextn_predict_layers};
  std::ranges::copy_if(model::op_list(config(), one_token), std::back_inserter(heads_), [](const model::Op& op) {
    return op.kind == model::OpKind::kHead;
  });
}

void Transformer::step(const StepInput& input, LatentCache& cache, model::Probe& probe) const {
  const auto ops = model::op_list(weights_.config(), input.workload);
  Values values(ops);
  const auto set_tokens = [&](const std::string& id, const std::vector<int32_t>& tokens) {
    values.set(id, model::make_tensor(model::DType::kI32, {input.workload.num_tokens()}, tokens));
  };
  if (const auto k = input.workload.only_mtp_layer; k) {
    CHECK_EQ(input.mtp_state.num_rows(), input.workload.num_tokens());
    values.set(model::mtp_state_id(*k), input.mtp_state);
    set_tokens("mtp." + std::to_string(*k) + ".tokens", input.mtp_tokens.at(static_cast<size_t>(*k)));
  } else {
    set_tokens("tokens", input.tokens);
    for (size_t layer = 0; layer < input.mtp_tokens.size(); ++layer) {
      set_tokens("mtp." + std::to_string(layer) + ".tokens", input.mtp_tokens[layer]);
    }
  }
  const auto cache_sequences = numbered_sequences(input);

  const auto run = [this](const OpCall& call) { return run_ ? run_(call) : run_op(call); };
  const auto reads_in_place = [this](const model::Op& op) { return !run_ && op.kind != model::OpKind::kLinear; };
  const auto call_for = [&](const model::Op& op) {
    OpCall call{
        .rules = rules_, .workload = input.workload, .weights = weights_, .op = op, .num_threads = num_threads_};
    for (const std::string& id : op.inputs) {
      call.inputs.push_back(is_cache(id) && reads_in_place(op) ? model::TensorView{}
                            : is_cache(id)                     ? cache.gather(op.layer, cache_sequences)
                                                               : values.get(id));
      if (is_cache(id) && reads_in_place(op)) {
        call.cache = &cache;
        call.cache_sequences = cache_sequences;
      }
      if (const auto* parts = values.parts(id); parts != nullptr && op.num_parts == 1) {
        call.expert_outputs = *parts;
      }
    }
    return call;
  };

  for (size_t i = 0; i < ops.size(); ++i) {
    const model::Op& op = ops[i];
    if ((op.optional && !probe.wants(op)) || (op.kind == model::OpKind::kHead && !input.with_logits)) {
      continue;
    }
    if (op.num_parts == 1) {
      auto value = run(call_for(op));
      if (op.kind == model::OpKind::kCacheLatent) {
        if (run_) {
          replace_rows(cache, op, input.workload, cache_sequences, value);
          probe.see(op, value);
        } else if (probe.wants(op)) {
          probe.see(op, cache.gather(op.layer, cache_sequences));
        }
      } else {
        probe.see(op, value);
        values.set(op.id, std::move(value));
      }
    } else {
      std::vector<model::TensorView> parts(static_cast<size_t>(op.num_parts));
      for (int64_t expert = 0; expert < op.num_parts; ++expert) {
        const model::Op part = model::expert_part(op, expert);
        OpCall call{
            .rules = rules_, .workload = input.workload, .weights = weights_, .op = part, .num_threads = num_threads_};
        for (const std::string& id : op.inputs) {
          const auto* group = values.parts(id);
          call.inputs.push_back(group == nullptr ? values.get(id) : (*group)[static_cast<size_t>(expert)]);
        }
        const bool gathers = call.inputs.back().dtype == model::DType::kI32;
        const bool visited =
            gathers ? !tokens_of_expert(call.inputs.back(), expert).empty() : !call.inputs[0].bytes.empty();
        if (visited) {
          parts[static_cast<size_t>(expert)] = run(call);
          probe.see(part, parts[static_cast<size_t>(expert)]);
        }
      }
      values.set_parts(op.id, std::move(parts));
    }
    values.drop_inputs_of(op, i);
  }
}

model::TensorView Transformer::logits(const model::TensorView& state, std::optional<int64_t> mtp_layer) const {
  const model::Workload workload{.sequences = {{.num_cached = 0, .num_new = state.num_rows()}},
                                 .only_mtp_layer = mtp_layer};
  model::Op op = heads_.at(mtp_layer ? static_cast<size_t>(*mtp_layer) + 1 : 0);
  op.shape[0] = state.num_rows();
  const OpCall call{.rules = rules_,
                    .workload = workload,
                    .weights = weights_,
                    .op = op,
                    .inputs = {state},
                    .num_threads = num_threads_};
  return run_ ? run_(call) : run_op(call);
}

std::vector<std::vector<int32_t>> shifted_tokens(const std::vector<std::vector<int32_t>>& fed,
                                                 const std::vector<std::vector<int32_t>>& following,
                                                 int64_t num_mtp_layers) {
  CHECK_EQ(fed.size(), following.size());
  std::vector<std::vector<int32_t>> shifted(static_cast<size_t>(num_mtp_layers));
  for (size_t s = 0; s < fed.size(); ++s) {
    CHECK(static_cast<int64_t>(following[s].size()) >= num_mtp_layers);
    std::vector<int32_t> whole = fed[s];
    whole.insert(whole.end(), following[s].begin(), following[s].end());
    for (size_t k = 0; k < shifted.size(); ++k) {
      const auto first = whole.begin() + static_cast<int64_t>(k) + 1;
      shifted[k].insert(shifted[k].end(), first, first + static_cast<int64_t>(fed[s].size()));
    }
  }
  return shifted;
}

}  // namespace reference
