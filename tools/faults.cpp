#include "tools/faults.hpp"

#include <fmt/ranges.h>

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

}  // namespace tools
