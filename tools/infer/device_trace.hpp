// What each op of a generation took, as op records (docs/contracts.md, section 5) or as a Chrome trace.
#pragma once

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
  void write();

 private:
  struct Step {
    gpu::StepInfo info;
    std::vector<gpu::OpTime> times;
  };

  [[nodiscard]] std::vector<model::OpRecord> records_of(const Step& step) const;
  [[nodiscard]] std::string chrome_trace() const;

  std::string path_;
  model::ModelConfig config_;
  std::string config_hash_;
  std::vector<std::unique_ptr<Step>> steps_;
};

}  // namespace tools
