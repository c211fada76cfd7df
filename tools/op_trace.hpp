// Wall time of every op of a run, as op records: the median over steps of one kind.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/op_record.hpp"
#include "reference/generate/step_rows.hpp"
#include "reference/ops/attention.hpp"

namespace tools {

// Watches a generation. An op's time is what passes between its result and the one before: the executor's own work is in it. The
// latent cache is not shown to a probe, so writing it counts to the op behind it.
class OpTrace : public reference::StepProbe {
 public:
  // `prompt_lens`: of each request; steps that reach no further are prefill, the others decode.
  explicit OpTrace(std::vector<int64_t> prompt_lens) : prompt_lens_(std::move(prompt_lens)) {}

  void enter_step(std::vector<reference::RowOrigin> rows) override;
  // kv_b is wanted, so that expanding keys has a row of its own.
  [[nodiscard]] bool wants(const model::Op& op) const override { return reference::is_kv_b(op); }
  void see(const model::Op& op, const model::TensorView& value) override;

  // One record for each op of each kind of step (phase, tokens, sequences), in order of execution; parts of a grouped op are one.
  // Context and costs are those of the middle step. `shared` fills source, device and commit.
  [[nodiscard]] std::vector<model::OpRecord> records(const model::ModelConfig& config,
                                                     const model::OpRecord& shared) const;

 private:
  struct StepKind {
    std::string phase;
    int64_t tokens = 0;
    int64_t batch = 0;
    bool is_draft = false;  // an MTP layer alone

    auto operator<=>(const StepKind&) const = default;
  };
  struct TimedOp {
    int64_t layer = -1;
    std::vector<double> time_us;    // of each step
    std::vector<double> num_parts;  // likewise: experts that some token chose; 1 for a plain op
    size_t last_step = 0;
  };
  struct Steps {
    std::vector<model::Workload> workloads;
    std::vector<std::string> order;  // ids as they first came
    std::map<std::string, TimedOp> ops;
  };

  std::vector<int64_t> prompt_lens_;
  std::map<StepKind, Steps> steps_;
  StepKind kind_;
  model::Workload workload_;
  bool is_new_step_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace tools
