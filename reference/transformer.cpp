#include "reference/transformer.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "reference/ops/attention.hpp"
#include "reference/values.hpp"

namespace reference {
namespace {

// The numbers in the cache of the sequences of a step.
Reused<int64_t> numbered_sequences(const StepInput& input) {
  Reused<int64_t> numbers(input.cache_sequences.begin(), input.cache_sequences.end());
  numbers.reserve(input.workload.sequences.size());
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

// One step under way.
class Transformer::Step {
 public:
  Step(const Transformer& transformer, Plan& plan, const StepInput& input, LatentCache& cache, model::Probe& probe)
      : transformer_(transformer),
        plan_(plan),
        input_(input),
        cache_(cache),
        probe_(probe),
        cache_sequences_(numbered_sequences(input)) {
    const auto& [sequences, form, num_mtp_layers, only_mtp_layer] = input.workload;
    if (only_mtp_layer) {
      CHECK_EQ(input.mtp_state.num_rows(), input.workload.num_tokens());
      plan.mtp_state().whole = input.mtp_state;
      set_tokens(plan.mtp_tokens(*only_mtp_layer), input.mtp_tokens.at(static_cast<size_t>(*only_mtp_layer)));
      return;
    }
    set_tokens(plan.tokens(), input.tokens);
    for (int64_t k = 0; k < num_mtp_layers; ++k) {
      set_tokens(plan.mtp_tokens(k), input.mtp_tokens.at(static_cast<size_t>(k)));
    }
  }

  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  // What nobody read, or would have after the last op, goes too.
  ~Step() {
    for (const PlannedOp& planned : plan_.ops()) {
      std::ranges::for_each(planned.inputs, [this](int slot) { drop(slot); });
      drop(planned.output);
    }
  }

  void run() {
    for (PlannedOp& planned : plan_.ops()) {
      const model::Op& op = planned.op;
      if (is_due(planned)) {
        op.num_parts == 1 ? run_whole(planned) : run_parts(planned);
      }
      if (op.id == input_.last_op) {
        return;
      }
      std::ranges::for_each(planned.last_reads, [this](int slot) { drop(slot); });
    }
  }

 private:
  void drop(int slot) {
    if (slot != kCacheSlot) {
      clear(plan_.value(slot).whole);
      std::ranges::for_each(plan_.value(slot).parts, clear);
    }
  }

  [[nodiscard]] bool is_due(const PlannedOp& planned) const {
    const model::Op& op = planned.op;
    const bool can_be_left_out = op.optional || (is_plain() && planned.matrix && is_kv_b(op) &&
                                                 expands_by_head(transformer_.rules_, transformer_.config()));
    return (!can_be_left_out || probe_.wants(op)) && (op.kind != model::OpKind::kHead || input_.with_logits);
  }

  void set_tokens(Value& value, const std::vector<int32_t>& tokens) {
    put(value.whole, model::DType::kI32, {input_.workload.num_tokens()}, Reused<int32_t>(tokens.begin(), tokens.end()));
  }

  // Whoever replaces run_op is given the cache as a tensor, and fetches weights through the call, where they may be others.
  [[nodiscard]] bool is_plain() const { return !transformer_.run_; }

  // Runs the op on the inputs that `fill` sets in its call.
  template <typename Fill>
  void compute(PlannedOp& planned, model::TensorView& result, const Fill& fill) const {
    OpCall call{.rules = transformer_.rules_,
                .workload = input_.workload,
                .weights = transformer_.weights_,
                .op = planned.op,
                .inputs = std::move(planned.views),
                .num_threads = transformer_.num_threads_};
    call.inputs.resize(planned.op.inputs.size());
    fill(call);
    if (is_plain()) {
      call.matrix = planned.matrix ? &*planned.matrix : nullptr;
      call.vector = planned.vector ? &*planned.vector : nullptr;
      call.rotations = &transformer_.rotations_;
      run_op_into(result, call);
    } else {
      result = transformer_.run_(call);
    }
    std::ranges::for_each(call.inputs, clear);
    planned.views = std::move(call.inputs);
  }

  void run_whole(PlannedOp& planned) {
    const model::Op& op = planned.op;
    model::TensorView cached;  // all rows of the layer, where somebody replaced run_op
    model::TensorView& result = op.kind == model::OpKind::kCacheLatent ? cached : plan_.value(planned.output).whole;
    compute(planned, result, [&](OpCall& call) {
      if (is_plain() && op.kind != model::OpKind::kLinear) {
        call.cache = &cache_;
        call.cache_sequences = cache_sequences_;
      }
      for (size_t i = 0; i < planned.inputs.size(); ++i) {
        const int slot = planned.inputs[i];
        if (slot != kCacheSlot) {
          Value& value = plan_.value(slot);
          call.inputs[i] = value.whole;
          if (!value.parts.empty()) {
            call.expert_outputs = value.parts;
          }
        } else if (call.cache == nullptr) {
          call.inputs[i] = cache_.gather(op.layer, cache_sequences_);
        }
      }
    });
    if (op.kind != model::OpKind::kCacheLatent) {
      probe_.see(op, result);
    } else if (!is_plain()) {
      replace_rows(cache_, op, input_.workload, cache_sequences_, result);
      probe_.see(op, result);
    } else if (probe_.wants(op)) {
      probe_.see(op, cache_.gather(op.layer, cache_sequences_));
    }
  }

  void run_parts(PlannedOp& planned) {
    auto& results = plan_.value(planned.output).parts;
    for (size_t expert = 0; expert < planned.parts.size(); ++expert) {
      const auto input = [&](int slot) -> const model::TensorView& {
        const Value& value = plan_.value(slot);
        return value.parts.empty() ? value.whole : value.parts[expert];
      };
      const model::TensorView& last = input(planned.inputs.back());
      const bool gathers = last.dtype == model::DType::kI32;
      if (gathers ? is_chosen(last, static_cast<int32_t>(expert)) : !input(planned.inputs.front()).bytes.empty()) {
        PlannedOp& part = planned.parts[expert];
        compute(part, results[expert], [&](OpCall& call) {
          for (size_t i = 0; i < planned.inputs.size(); ++i) {
            call.inputs[i] = input(planned.inputs[i]);
          }
        });
        probe_.see(part.op, results[expert]);
      } else {
        clear(results[expert]);
      }
    }
  }

  static bool is_chosen(const model::TensorView& topk_ids, int32_t expert) {
    return std::ranges::count(topk_ids.codes<int32_t>(), expert) > 0;
  }

  const Transformer& transformer_;
  Plan& plan_;
  const StepInput& input_;
  LatentCache& cache_;
  model::Probe& probe_;
  Reused<int64_t> cache_sequences_;
};

Transformer::Transformer(const model::WeightSource& weights, Rules rules, int num_threads, RunOp run)
    : weights_(weights),
      rules_(rules),
      num_threads_(num_threads),
      run_(std::move(run)),
      rotations_(weights.config(), rules.frequency) {
  const model::Workload one_token{.sequences = {{.num_cached = 0, .num_new = 1}},
                                  .num_mtp_layers = config().num_nextn_predict_layers};
  for (model::Op& op : model::op_list(config(), one_token)) {
    if (op.kind == model::OpKind::kHead) {
      heads_.push_back({.op = std::move(op), .matrix = {}});
    }
  }
}

void Transformer::step(const StepInput& input, LatentCache& cache, model::Probe& probe) const {
  const std::scoped_lock lock(mutex_);
  auto plan = std::ranges::find_if(plans_, [&](const Plan& known) { return known.fits(input.workload); });
  if (plan == plans_.end()) {
    const bool reads_bf16 = !run_ && !rules_.exact() && rules_.half == model::DType::kBF16;
    plans_.emplace_back(weights_, input.workload, weights_.keeps_tensors(), reads_bf16 ? &half_weights_ : nullptr);
    plan = plans_.end() - 1;
  }
  plan->set_lengths(input.workload);
  Step(*this, *plan, input, cache, probe).run();
}

model::TensorView Transformer::logits(const model::TensorView& state,
                                      std::optional<int64_t> mtp_layer,
                                      model::Probe* probe) const {
  const model::Workload workload{.sequences = {{.num_cached = 0, .num_new = state.num_rows()}},
                                 .only_mtp_layer = mtp_layer};
  const std::scoped_lock lock(mutex_);
  Head& head = heads_.at(mtp_layer ? static_cast<size_t>(*mtp_layer) + 1 : 0);
  if (!head.matrix && weights_.keeps_tensors()) {
    head.matrix.emplace(weights_, head.op.weights.front());
  }
  head.op.shape[0] = state.num_rows();
  const OpCall call{.rules = rules_,
                    .workload = workload,
                    .weights = weights_,
                    .op = head.op,
                    .inputs = {state},
                    .matrix = head.matrix && !run_ ? &*head.matrix : nullptr,
                    .num_threads = num_threads_};
  auto value = run_ ? run_(call) : run_op(call);
  if (probe != nullptr) {
    probe->see(head.op, value);
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
