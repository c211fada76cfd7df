#include "tools/faults.hpp"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "tools/faults/change.hpp"

namespace tools {

const std::vector<Fault>& all_faults() {
  static const std::vector<Fault> faults = [] {
    std::vector<Fault> all;
    for (const auto& area : {faults::choice_faults,
                             faults::weighting_faults,
                             faults::expert_faults,
                             faults::scale_faults,
                             faults::quantiser_faults,
                             faults::product_faults,
                             faults::score_faults,
                             faults::value_faults,
                             faults::rotation_faults,
                             faults::cache_faults,
                             faults::norm_faults,
                             faults::stream_faults,
                             faults::mtp_faults}) {
      for (Fault& fault : area()) {
        all.push_back(std::move(fault));
      }
    }
    return all;
  }();
  return faults;
}

const Fault& find_fault(const std::string& id) {
  std::vector<std::string> known;
  for (const Fault& fault : all_faults()) {
    if (fault.id == id) {
      return fault;
    }
    known.push_back(fault.id);
  }
  model::throw_input_error("--fault {}: no such fault; known: {}", id, fmt::join(known, ", "));
}

std::string cases_text(const std::vector<golden::Case>& cases) {
  nlohmann::ordered_json root;
  for (const auto& step : cases) {
    if (!step.after.empty()) {
      root["decode"]["prefill"] = cases.front().name;
      root["decode"]["feed"].push_back(step.sequences.at(0).at(0));
    } else if (step.sequences.size() > 1) {
      root["batch2"][step.name] = step.sequences;
    } else {
      root["prompts"][step.name] = step.sequences.at(0);
    }
    if (!step.mtp_ids.empty()) {
      root["mtp"][step.name] = step.mtp_ids;
    }
  }
  return root.dump();
}

}  // namespace tools
