// Planted faults: a named change of one op, made from outside. The reference itself holds no fault code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/transformer.hpp"

namespace tools {

struct Fault {
  std::string id;           // bb-03: row of docs/bug-bank.md; k-..: a kernel's typical fault
  std::string description;
  std::string starts_at;    // glob on the id of the first op that goes wrong
  std::string fixture;      // checkpoint that shows it
  // Runs one op with the fault in it.
  std::function<model::TensorView(const reference::OpCall&)> run;
};

const std::vector<Fault>& all_faults();
// Throws InputError listing the known ids.
const Fault& find_fault(const std::string& id);

}  // namespace tools
