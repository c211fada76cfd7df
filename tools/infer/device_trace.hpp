// What each op of a generation took, as op records (docs/contracts.md, section 5) or as a Chrome trace.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "gpu/engine/scheduler.hpp"
#include "model/op_record.hpp"

namespace tools {

class DeviceTrace {
 public:
  // Throws InputError unless `path` ends with .csv or .json and can be written. Nothing is written before write().
  DeviceTrace(const std::string& path, const model::ModelConfig& config, std::string config_hash);

  // The step whose ops come next; they are added to the returned list.
  std::vector<gpu::OpTime>* enter_step(const gpu::StepInfo& step);
  // The steps so far as bytes, to be sent to the rank that writes.
  [[nodiscard]] std::string pack() const;
  // In place of the own steps: what each rank of a job packed.
  void unpack_ranks(const std::vector<std::string>& packed);
  void write();

 private:
  struct Step {
    gpu::StepInfo info;
    std::vector<gpu::OpTime> times;
    int64_t rank = 0;
  };

  [[nodiscard]] std::vector<model::OpRecord> records_of(const Step& step) const;
  [[nodiscard]] std::string chrome_trace() const;

  std::string path_;
  model::ModelConfig config_;
  std::string config_hash_;
  std::deque<Step> steps_;  // what is in it stays where it is
  int64_t num_ranks_ = 1;
};

}  // namespace tools
