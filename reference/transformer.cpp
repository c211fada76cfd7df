#include "reference/transformer.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace reference {
namespace {

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

// The tensors of one step by slot; those of grouped ops by expert.
struct Values {
  explicit Values(size_t num_slots) : whole(num_slots), parts(num_slots) {}

  void drop(std::span<const int> slots) {
    for (const int slot : slots) {
      whole[static_cast<size_t>(slot)] = {};
      parts[static_cast<size_t>(slot)].clear();
    }
  }

  std::vector<model::TensorView> whole;
  std::vector<std::vector<model::TensorView>> parts;
};

}  // namespace

// One step under way.
class Transformer::Step {
 public:
  Step(const Transformer& transformer,
       const Plan& plan,
       RotationTable& rotations,
       const StepInput& input,
       LatentCache& cache,
       model::Probe& probe)
      : transformer_(transformer),
        plan_(plan),
        rotations_(rotations),
        input_(input),
        cache_(cache),
        probe_(probe),
        cache_sequences_(numbered_sequences(input)),
        values_(plan.num_slots()) {
    if (const auto k = input.workload.only_mtp_layer; k) {
      CHECK_EQ(input.mtp_state.num_rows(), input.workload.num_tokens());
      set(model::mtp_state_id(*k), input.mtp_state);
      set_tokens("mtp." + std::to_string(*k) + ".tokens", input.mtp_tokens.at(static_cast<size_t>(*k)));
      return;
    }
    set_tokens("tokens", input.tokens);
    for (int64_t k = 0; k < input.workload.num_mtp_layers; ++k) {
      set_tokens("mtp." + std::to_string(k) + ".tokens", input.mtp_tokens.at(static_cast<size_t>(k)));
    }
  }

  void run() {
    for (const PlannedOp& planned : plan_.ops()) {
      const model::Op& op = planned.op;
      if ((!op.optional || probe_.wants(op)) && (op.kind != model::OpKind::kHead || input_.with_logits)) {
        op.num_parts == 1 ? run_whole(planned) : run_parts(planned);
      }
      if (op.id == input_.last_op) {
        return;
      }
      values_.drop(planned.last_reads);
    }
  }

 private:
  void set(const std::string& id, model::TensorView value) {
    values_.whole[static_cast<size_t>(plan_.slot(id))] = std::move(value);
  }
  void set_tokens(const std::string& id, const std::vector<int32_t>& tokens) {
    set(id, model::make_tensor(model::DType::kI32, {input_.workload.num_tokens()}, tokens));
  }

  // Whoever replaces run_op is given the cache as a tensor, and fetches weights through the call, where they may be others.
  [[nodiscard]] bool is_plain() const { return !transformer_.run_; }
  [[nodiscard]] model::TensorView computed(const OpCall& call) const {
    return is_plain() ? run_op(call) : transformer_.run_(call);
  }

  [[nodiscard]] OpCall call_of(const PlannedOp& planned) const {
    OpCall call{.rules = transformer_.rules_,
                .workload = input_.workload,
                .weights = transformer_.weights_,
                .op = planned.op,
                .num_threads = transformer_.num_threads_};
    if (is_plain()) {
      call.matrix = planned.matrix ? &*planned.matrix : nullptr;
      call.vector = planned.vector ? &*planned.vector : nullptr;
      call.rotations = &rotations_;
    }
    call.inputs.reserve(planned.op.inputs.size());
    return call;
  }

  void run_whole(const PlannedOp& planned) {
    const model::Op& op = planned.op;
    OpCall call = call_of(planned);
    for (const int slot : planned.inputs) {
      if (slot != kCacheSlot) {
        call.inputs.push_back(values_.whole[static_cast<size_t>(slot)]);
        if (const auto& parts = values_.parts[static_cast<size_t>(slot)]; !parts.empty()) {
          call.expert_outputs = parts;
        }
      } else if (is_plain() && op.kind != model::OpKind::kLinear) {
        call.inputs.emplace_back();
        call.cache = &cache_;
        call.cache_sequences = cache_sequences_;
      } else {
        call.inputs.push_back(cache_.gather(op.layer, cache_sequences_));
      }
    }
    auto value = computed(call);
    if (op.kind != model::OpKind::kCacheLatent) {
      probe_.see(op, value);
      values_.whole[static_cast<size_t>(planned.output)] = std::move(value);
    } else if (!is_plain()) {
      replace_rows(cache_, op, input_.workload, cache_sequences_, value);
      probe_.see(op, value);
    } else if (probe_.wants(op)) {
      probe_.see(op, cache_.gather(op.layer, cache_sequences_));
    }
  }

  void run_parts(const PlannedOp& planned) {
    auto& results = values_.parts[static_cast<size_t>(planned.output)];
    results.resize(planned.parts.size());
    for (size_t expert = 0; expert < planned.parts.size(); ++expert) {
      const auto input = [&](int slot) -> const model::TensorView& {
        const auto& parts = values_.parts[static_cast<size_t>(slot)];
        return parts.empty() ? values_.whole[static_cast<size_t>(slot)] : parts[expert];
      };
      const model::TensorView& last = input(planned.inputs.back());
      const bool gathers = last.dtype == model::DType::kI32;
      if (gathers ? is_chosen(last, static_cast<int32_t>(expert)) : !input(planned.inputs.front()).bytes.empty()) {
        const PlannedOp& part = planned.parts[expert];
        OpCall call = call_of(part);
        for (const int slot : planned.inputs) {
          call.inputs.push_back(input(slot));
        }
        results[expert] = computed(call);
        probe_.see(part.op, results[expert]);
      }
    }
  }

  static bool is_chosen(const model::TensorView& topk_ids, int32_t expert) {
    return std::ranges::count(topk_ids.codes<int32_t>(), expert) > 0;
  }

  const Transformer& transformer_;
  const Plan& plan_;
  RotationTable& rotations_;
  const StepInput& input_;
  LatentCache& cache_;
  model::Probe& probe_;
  std::vector<int64_t> cache_sequences_;
  Values values_;
};

Transformer::Transformer(const model::WeightSource& weights, Rules rules, int num_threads, RunOp run)
    : weights_(weights),
      rules_(rules),
      num_threads_(num_threads),
      run_(std::move(run)),
      rotations_(weights.config(), rules.frequency) {
  const model::Workload one_token{.sequences = {{.num_cached = 0, .num_new = 1}},
                                  .num_mtp_layers = config().num_nextn_predict_layers};
  std::ranges::copy_if(model::op_list(config(), one_token), std::back_inserter(heads_), [](const model::Op& op) {
    return op.kind == model::OpKind::kHead;
  });
}

void Transformer::step(const StepInput& input, LatentCache& cache, model::Probe& probe) const {
  const std::scoped_lock lock(mutex_);
  auto plan = std::ranges::find_if(plans_, [&](const Plan& known) { return known.fits(input.workload); });
  if (plan == plans_.end()) {
    plans_.emplace_back(weights_, input.workload, weights_.keeps_tensors());
    plan = plans_.end() - 1;
  }
  plan->set_lengths(input.workload);
  Step(*this, *plan, rotations_, input, cache, probe).run();
}

model::TensorView Transformer::logits(const model::TensorView& state,
                                      std::optional<int64_t> mtp_layer,
                                      model::Probe* probe) const {
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
  auto value = run_ ? run_(call) : run_op(call);
  if (probe != nullptr) {
    probe->see(op, value);
  }
  return value;
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
