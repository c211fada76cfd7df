// Planted faults: a named change of one op, made from outside. The reference itself holds no fault code. docs/faults.md.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "golden/cases.hpp"
#include "reference/transformer.hpp"

namespace tools {

struct Fault {
  std::string id;  // bb-..: reported in public; h-..: a misreading of docs/model.md; k-..: a kernel's typical fault
  std::string description;
  std::string starts_at;            // glob on the id of the op that goes wrong
  std::string fixture;              // checkpoint that shows it, as --checkpoint takes it
  std::vector<golden::Case> cases;  // that show it
  // Runs one op with the fault in it.
  std::function<model::TensorView(const reference::OpCall&)> run;
};

const std::vector<Fault>& all_faults();
// Throws InputError listing the known ids.
const Fault& find_fault(const std::string& id);
// The cases as JSON that --cases reads.
std::string cases_text(const std::vector<golden::Case>& cases);

}  // namespace tools
