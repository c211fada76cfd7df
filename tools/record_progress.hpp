// How far a recording is: which op of which case, and how long the rest takes if it goes on as fast as so far.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "golden/cases.hpp"
#include "model/config.hpp"
#include "model/op_list.hpp"

namespace tools {

class RecordProgress {
 public:
  // `total_flops`: of all steps. `show` is given a line a few times a second.
  RecordProgress(double total_flops, std::function<void(const std::string&)> show);

  void begin_step(const std::string& case_name, const std::vector<model::Op>& ops);
  void see(const model::Op& op);

 private:
  using Clock = std::chrono::steady_clock;

  double total_flops_;
  std::function<void(const std::string&)> show_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_ = Clock::time_point();
  std::string case_name_;
  double before_step_ = 0;  // flops of the steps that are done
  double of_step_ = 0;
  std::map<std::string, double> until_;  // op id -> flops of the step up to and with it; a grouped op by its own id
};

// Multiply-adds of a step, times two.
double num_flops(const std::vector<model::Op>& ops);

}  // namespace tools
