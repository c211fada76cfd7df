#include "tools/record.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "golden/recorder.hpp"
#include "reference/estimate_call.hpp"
#include "reference/values.hpp"
#include "tools/faults.hpp"

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
  explicit LogitsProbe(golden::Recorder* recorder) : recorder_(recorder) {}

  [[nodiscard]] bool wants(const model::Op& op) const override { return recorder_ != nullptr && recorder_->wants(op); }
  void see(const model::Op& op, const model::TensorView& value) override {
    if (op.kind == model::OpKind::kHead) {
      const auto row = reference::load<double>(model::slice_rows(value, value.num_rows() - 1, value.num_rows()));
      argmax_[op.id] = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    }
    if (recorder_ != nullptr) {
      recorder_->see(op, value);
    }
  }

  // Token with the largest logit in the last row; the lower id wins a tie.
  [[nodiscard]] int32_t argmax(const std::string& head) const { return argmax_.at(head); }

 private:
  golden::Recorder* recorder_;
  std::map<std::string, int32_t> argmax_;
};

// Runs cases one after another and keeps the cache each one leaves behind.
class CaseRunner {
 public:
  CaseRunner(const model::WeightSource& weights, const RecordJob& job, golden::GoldenFile& golden)
      : weights_(weights),
        job_(job),
        golden_(golden),
        transformer_(weights, job.rules ? *job.rules : rules_of(job.mode), job.num_threads, run_op_of(job)),
        draft_missing_(std::ranges::all_of(job.cases, [](const golden::Case& c) { return c.mtp_ids.empty(); })) {}

  // Returns the greedy next token (of the last sequence).
  int32_t run(golden::Case step) {
    if (job_.on_case) {
      job_.on_case(step.name);
    }
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
    golden::Recorder recorder(step, job_.ops, job_.layers);
    const bool stored = job_.recorded.empty() ||
                        std::find(job_.recorded.begin(), job_.recorded.end(), step.name) != job_.recorded.end();
    LogitsProbe probe(stored ? &recorder : nullptr);
    transformer_.step(input, cache, probe);
    caches_[step.name] = std::move(cache);
    lengths_[step.name] = input.workload;
    golden_.manifest.cases.push_back(step);
    golden_.tensors.insert(recorder.tensors().begin(), recorder.tensors().end());
    add_bounds(step, recorder);
    return probe.argmax("logits");
  }

 private:
  reference::Transformer::RunOp run_op_of(const RecordJob& job) {
    reference::Transformer::RunOp run = job.run;
    if (!job.fault.empty()) {
      run = find_fault(job.fault).run;
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

  // How far a legal result may lie from the recorded one before its last rounding, given the op's own inputs.
  static model::TensorView bound_of(const reference::OpCall& call) {
    const auto estimates = [](const std::vector<model::TensorView>& tensors) {
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
    const bool expanded = job_.mode.attention == "naive" || (job_.mode.attention == "by-length" && most_new > 1);
    input.workload.attention_form = expanded ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
    return input;
  }

  // Greedy drafts for a case that names none: the main model's next token, then each MTP layer's.
  std::vector<int32_t> drafted(const golden::Case& step,
                               reference::StepInput input,
                               const reference::LatentCache& cache) const {
    std::vector<int32_t> ids;
    for (int64_t k = 0; k < weights_.config().num_nextn_predict_layers; ++k) {
      input.workload.num_mtp_layers = k;
      input.mtp_tokens = reference::shifted_tokens(step.sequences, {ids}, k);
      LogitsProbe probe(nullptr);
      auto scratch = cache;
      transformer_.step(input, scratch, probe);
      ids.push_back(probe.argmax(model::logits_id(k == 0 ? std::nullopt : std::optional(k - 1))));
    }
    return ids;
  }

  const model::WeightSource& weights_;
  const RecordJob& job_;
  golden::GoldenFile& golden_;
  reference::Transformer transformer_;
  bool
      draft_missing_;  // cases that name drafts decide where MTP runs; if none does, it runs everywhere on greedy drafts
  std::map<std::string, reference::LatentCache> caches_;
  std::map<std::string, model::Workload> lengths_;
  std::map<std::string, model::TensorView> bounds_;  // of the running step, by op id
};

}  // namespace

golden::GoldenFile record(const model::WeightSource& weights, const RecordJob& job) {
  golden::GoldenFile golden;
  const HashingWeights hashing(weights);
  CaseRunner runner(hashing, job, golden);
  int32_t next = 0;
  for (const golden::Case& step : job.cases) {
    next = runner.run(step);
  }
  std::string after = job.cases.back().name;
  for (int64_t i = 0; i < job.num_decode; ++i) {
    golden::Case step{.name = fmt::format("d{}", i), .after = after, .sequences = {{next}}};
    after = step.name;
    next = runner.run(step);
  }
  auto& manifest = golden.manifest;
  manifest.mode = job.mode.mode;
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
