// The pieces of a join: records grouped by step, source and device, and the rows of a scenario that groups are filled into.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "report/scenario.hpp"

namespace report {

// host.fma and host.read of dsv3-bench: figures of a machine, no ops.
bool is_host_peak(const model::OpRecord& record);

// What has to agree for two records to be of the same step.
struct StepKey {
  std::string config_hash;
  std::string phase;
  int64_t batch = 0;
  int64_t tokens = 0;
  int64_t context_len = 0;

  auto operator<=>(const StepKey&) const = default;
};

// Records of one source, device and layout; in one step.
struct Group {
  StepKey step;
  model::RecordSource source = model::RecordSource::kLimit;
  std::string device;
  std::string layout;
  const RecordFile* file = nullptr;
  std::vector<const model::OpRecord*> records = {};
  std::set<std::string> commits = {};

  [[nodiscard]] bool is_deployment() const {
    return source == model::RecordSource::kSimulated || source == model::RecordSource::kLimit ||
           source == model::RecordSource::kCuda;
  }
};

// In the order of their first records.
std::vector<Group> groups_of(const std::vector<RecordFile>& files);

// Fills the rows of a scenario group by group. Costs of a row come from the first group that has any.
class Joiner {
 public:
  // Both have to outlive the joiner.
  Joiner(Scenario& scenario, std::vector<Notice>& notices) : scenario_(scenario), notices_(notices) {}

  // One more series; none for an emulated group, whose counts fill rows only.
  void add(const Group& group);
  // Puts rows that only some sources have where they belong: behind the last op of their layer, engine rows at the end.
  void order();

 private:
  size_t row_of(const model::OpRecord& record);

  Scenario& scenario_;
  std::vector<Notice>& notices_;
  std::unordered_map<std::string, size_t> rows_;
};

}  // namespace report
