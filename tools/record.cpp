#include "tools/record.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "reference/estimate_call.hpp"
#include "reference/values.hpp"
#include "tools/faults.hpp"
#include "tools/record_journal.hpp"
#include "tools/record_progress.hpp"

namespace tools {
namespace {

// Width of stored bounds: an element of a legal result lies outside with probability 2 exp(-40.5) = 5e-18.
constexpr double kBoundSigmas = 9;

// Hashes each tensor the first time it is read.
class HashingWeights : public model::WeightSource {
 public:
  explicit HashingWeights(const model::WeightSource& original) : original_(original) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return original_.config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    auto tensor = original_.weight(name);
    const std::scoped_lock lock(mutex_);
    if (!hashes_.contains(name)) {
      hashes_[name] = golden::content_hash(tensor);
    }
    return tensor;
  }

  [[nodiscard]] const std::map<std::string, std::string>& hashes() const { return hashes_; }

 private:
  const model::WeightSource& original_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> hashes_;
};

// Keeps the last logits of every head beside what the recorder keeps: greedy decoding and drafting need them.
class LogitsProbe : public model::Probe {
 public:
  explicit LogitsProbe(golden::Recorder* recorder, RecordProgress* progress = nullptr)
      : recorder_(recorder), progress_(progress) {}

  [[nodiscard]] bool wants(const model::Op& op) const override { return recorder_ != nullptr && recorder_->wants(op); }
  void see(const model::Op& op, const model::TensorView& value) override {
    if (op.kind == model::OpKind::kHead) {
      const auto row = reference::load<double>(model::slice_rows(value, value.num_rows() - 1, value.num_rows()));
      argmax_[op.id] = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
    if (recorder_ != nullptr) {
      recorder_->see(op, value);
    }
    if (progress_ != nullptr) {
      progress_->see(op);
    }
  }

  // Token with the largest logit in the last row; the lower id wins a tie. 0 if the step ended before the head.
  [[nodiscard]] int32_t argmax(const std::string& head) const {
    const auto found = argmax_.find(head);
    return found == argmax_.end() ? 0 : found->second;
  }

 private:
  golden::Recorder* recorder_;
  RecordProgress* progress_;
  std::map<std::string, int32_t> argmax_;
};

// Expanded or absorbed attention, as the flag decides it.
model::AttentionForm form_of(const std::string& attention, int64_t most_new) {
  const bool expanded = attention == "naive" || (attention == "by-length" && most_new > 1);
  return expanded ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
}

// The lengths of a case.
model::Workload lengths_of(const RecordJob& job, const std::vector<golden::Case>& all, const golden::Case& step) {
  model::Workload workload{.sequences = golden::sequence_steps(all, step)};
  int64_t most_new = 0;
  for (const auto& sequence : workload.sequences) {
    most_new = std::max(most_new, sequence.num_new);
  }
  workload.attention_form = form_of(job.mode.attention, most_new);
  return workload;
}

// The last op of the list that is recorded, so that the rest need not run. Empty if none is.
std::string last_wanted(const std::vector<model::Op>& ops, const golden::Recorder& recorder) {
  std::string last;
  for (const auto& op : ops) {
    bool wanted = recorder.wants(op);
    for (int64_t expert = 0; op.num_parts > 1 && !wanted && expert < op.num_parts; ++expert) {
      wanted = recorder.wants(model::expert_part(op, expert));
    }
    last = wanted ? op.id : last;
  }
  return last;
}

// The lengths of every step: the cases, then those that decode.
std::vector<model::Workload> steps_of(const RecordJob& job) {
  std::vector<model::Workload> steps;
  for (const golden::Case& step : job.cases) {
    steps.push_back(lengths_of(job, job.cases, step));
  }
  for (int64_t i = 0; i < job.num_decode; ++i) {
    model::Workload decode = steps.back();
    for (auto& sequence : decode.sequences) {
      sequence = {.num_cached = sequence.num_cached + sequence.num_new, .num_new = 1};
    }
    decode.attention_form = form_of(job.mode.attention, 1);
    steps.push_back(std::move(decode));
  }
  return steps;
}

[[noreturn]] void refuse_empty(const RecordJob& job) {
  std::string what = job.ops.empty() ? "" : fmt::format(" --ops {}", fmt::join(job.ops, ","));
  what += job.layers.empty() ? "" : fmt::format(" --layers {}", fmt::join(job.layers, ","));
  model::throw_input_error("record: no op of these cases matches{}; docs/contracts.md has the names", what);
}

// Before the work: whether any op of any step is asked for.
void check_wanted(const model::ModelConfig& config, const RecordJob& job) {
  const golden::Recorder recorder({}, job.ops, job.layers, {});
  const bool is_wanted = std::ranges::any_of(steps_of(job), [&](model::Workload step) {
    step.num_mtp_layers = job.with_mtp ? config.num_nextn_predict_layers : 0;
    return !last_wanted(model::op_list(config, step), recorder).empty();
  });
  if (!is_wanted) {
    refuse_empty(job);
  }
}

// Runs cases one after another and keeps the cache each one leaves behind.
class CaseRunner {
 public:
  CaseRunner(const model::WeightSource& weights, const RecordJob& job, golden::GoldenFile& golden)
      : weights_(weights),
        job_(job),
        golden_(golden),
        draft_missing_(std::ranges::all_of(job.cases, [](const golden::Case& c) { return c.mtp_ids.empty(); })) {
    if (job.show) {
      progress_.emplace(num_flops(weights.config(), job), job.show);
    }
    if (!job.journal.empty()) {
      journal_.emplace(job.journal, job.identity);
    }
    transformer_.emplace(weights, job.rules ? *job.rules : rules_of(job.mode), job.num_threads, run_op_of(job));
  }

  void finish() {
    if (journal_) {
      journal_->remove();
    }
  }

  // Returns the greedy next token (of the last sequence).
  int32_t run(golden::Case step, bool is_last) {
    auto input = step_input(step);
    auto cache = step.after.empty() ? reference::LatentCache() : caches_.at(step.after);
    if (!job_.with_mtp) {
      step.mtp_ids.clear();
    } else if (step.mtp_ids.empty() && step.sequences.size() == 1 && draft_missing_) {
      step.mtp_ids = drafted(step, input, cache);
    }
    const auto num_mtp =
        std::min<int64_t>(weights_.config().num_nextn_predict_layers, static_cast<int64_t>(step.mtp_ids.size()));
    input.workload.num_mtp_layers = num_mtp;
    if (num_mtp > 0) {
      input.mtp_tokens = reference::shifted_tokens(step.sequences, {step.mtp_ids}, num_mtp);
    }
    golden::Recorder recorder(step, job_.ops, job_.layers, job_.store);
    const bool stored = job_.recorded.empty() ||
                        std::find(job_.recorded.begin(), job_.recorded.end(), step.name) != job_.recorded.end();
    const auto ops = model::op_list(weights_.config(), input.workload);
    if (is_last && !job_.with_mtp && stored) {
      input.last_op = last_wanted(ops, recorder);
    }
    if (progress_) {
      progress_->begin_step(step.name, ops);
    }
    LogitsProbe probe(stored ? &recorder : nullptr, progress_ ? &*progress_ : nullptr);
    take_step(input, cache, probe);
    caches_[step.name] = std::move(cache);
    lengths_[step.name] = input.workload;
    golden_.manifest.cases.push_back(step);
    golden_.tensors.insert(recorder.tensors().begin(), recorder.tensors().end());
    golden_.manifest.reduced.insert(recorder.reduced().begin(), recorder.reduced().end());
    add_bounds(step, recorder);
    return probe.argmax("logits");
  }

 private:
  reference::Transformer::RunOp run_op_of(const RecordJob& job) {
    reference::Transformer::RunOp run = job.run;
    if (!job.fault.empty()) {
      run = find_fault(job.fault).run;
    }
    if (journal_) {
      run = [this, run = run ? run : reference::Transformer::RunOp(reference::run_op)](const reference::OpCall& call) {
        const std::string key = fmt::format("{}/{}", num_steps_, call.op.id);
        model::TensorView output;
        if (!journal_->read(key, output)) {
          output = run(call);
          journal_->append(key, output);
        }
        return output;
      };
    }
    if (!job.with_bounds) {
      return run;
    }
    return [this, run = run ? run : reference::Transformer::RunOp(reference::run_op)](const reference::OpCall& call) {
      if (call.op.kind != model::OpKind::kRouterGroups && call.op.kind != model::OpKind::kRouterExperts) {
        bounds_[call.op.id] = bound_of(call);
      }
      return run(call);
    };
  }

  void take_step(const reference::StepInput& input, reference::LatentCache& cache, LogitsProbe& probe) {
    transformer_->step(input, cache, probe);
    ++num_steps_;
  }

  // How far a legal result may lie from the recorded one before its last rounding, given the op's own inputs.
  static model::TensorView bound_of(const reference::OpCall& call) {
    const auto estimates = [](std::span<const model::TensorView> tensors) {
      std::vector<model::Estimate> result;
      for (const auto& tensor : tensors) {
        result.push_back(tensor.bytes.empty() ? model::Estimate{} : reference::given(tensor));
      }
      return result;
    };
    auto estimate = reference::estimate_op({.rules = call.rules,
                                            .workload = call.workload,
                                            .weights = call.weights,
                                            .op = call.op,
                                            .inputs = estimates(call.inputs),
                                            .expert_outputs = estimates(call.expert_outputs),
                                            .num_sigmas = kBoundSigmas,
                                            .num_threads = call.num_threads});
    return model::make_tensor(model::DType::kF64, estimate.shape, std::move(estimate.error));
  }

  void add_bounds(const golden::Case& step, const golden::Recorder& recorder) {
    for (const auto& [name, tensor] : recorder.tensors()) {
      const std::string id = name.substr(step.name.size() + 1);
      if (const auto bound = bounds_.find(id); bound != bounds_.end()) {
        golden_.tensors[name + ".bound"] = golden::stored_rows(step, id, bound->second);
      }
    }
    bounds_.clear();
  }

  reference::StepInput step_input(const golden::Case& step) const {
    reference::StepInput input;
    int64_t most_new = 0;
    for (size_t s = 0; s < step.sequences.size(); ++s) {
      const auto& tokens = step.sequences[s];
      model::SequenceStep sequence{.num_new = static_cast<int64_t>(tokens.size())};
      if (!step.after.empty()) {
        const auto& before = lengths_.at(step.after).sequences.at(s);
        sequence.num_cached = before.num_cached + before.num_new;
      }
      most_new = std::max(most_new, sequence.num_new);
      input.workload.sequences.push_back(sequence);
      input.tokens.insert(input.tokens.end(), tokens.begin(), tokens.end());
    }
    input.workload.attention_form = form_of(job_.mode.attention, most_new);
    return input;
  }

  // Greedy drafts for a case that names none: the main model's next token, then each MTP layer's.
  std::vector<int32_t> drafted(const golden::Case& step,
                               reference::StepInput input,
                               const reference::LatentCache& cache) {
    std::vector<int32_t> ids;
    for (int64_t k = 0; k < weights_.config().num_nextn_predict_layers; ++k) {
      input.workload.num_mtp_layers = k;
      input.mtp_tokens = reference::shifted_tokens(step.sequences, {ids}, k);
      LogitsProbe probe(nullptr);
      auto scratch = cache;
      take_step(input, scratch, probe);
      ids.push_back(probe.argmax(model::logits_id(k == 0 ? std::nullopt : std::optional(k - 1))));
    }
    return ids;
  }

  const model::WeightSource& weights_;
  const RecordJob& job_;
  golden::GoldenFile& golden_;
  std::optional<RecordProgress> progress_;
  std::optional<RecordJournal> journal_;
  int64_t num_steps_ = 0;  // taken, drafts included: tells apart the journal's entries of equal ops
  std::optional<reference::Transformer> transformer_;
  bool
      draft_missing_;  // cases that name drafts decide where MTP runs; if none does, it runs everywhere on greedy drafts
  std::map<std::string, reference::LatentCache> caches_;
  std::map<std::string, model::Workload> lengths_;
  std::map<std::string, model::TensorView> bounds_;  // of the running step, by op id
};

}  // namespace

ModeFlags mode_of(const golden::Manifest& manifest) {
  return {manifest.mode, manifest.profile, manifest.gemm, manifest.scale, manifest.attention, manifest.arithmetic};
}

double num_flops(const model::ModelConfig& config, const RecordJob& job) {
  double flops = 0;
  for (const model::Workload& step : steps_of(job)) {
    flops += num_flops(model::op_list(config, step));
  }
  return flops;
}

golden::GoldenFile record(const model::WeightSource& weights, const RecordJob& job) {
  check_wanted(weights.config(), job);
  golden::GoldenFile golden;
  const HashingWeights hashing(weights);
  CaseRunner runner(job.hashes_weights ? static_cast<const model::WeightSource&>(hashing) : weights, job, golden);
  int32_t next = 0;
  for (size_t i = 0; i < job.cases.size(); ++i) {
    next = runner.run(job.cases[i], i + 1 == job.cases.size() && job.num_decode == 0);
  }
  std::string after = job.cases.back().name;
  for (int64_t i = 0; i < job.num_decode; ++i) {
    golden::Case step{.name = fmt::format("d{}", i), .after = after, .sequences = {{next}}};
    after = step.name;
    next = runner.run(step, i + 1 == job.num_decode);
  }
  runner.finish();
  if (golden.tensors.empty() && golden.manifest.reduced.empty()) {
    refuse_empty(job);  // only cases that are not recorded have the op
  }
  auto& manifest = golden.manifest;
  manifest.mode = job.mode.mode;
  manifest.arithmetic = job.mode.arithmetic;
  manifest.profile = job.mode.profile;
  manifest.gemm = job.mode.gemm;
  manifest.scale = job.mode.scale;
  manifest.attention = job.mode.attention;
  manifest.rules = reference::describe_rules(rules_of(job.mode));
  manifest.weight_hashes = hashing.hashes();
  manifest.ops = job.ops;
  manifest.fault = job.fault;
  return golden;
}

}  // namespace tools
