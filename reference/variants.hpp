// The rules that published engines use in place of the profile's own: what a dump may legally follow.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "model/op_list.hpp"
#include "reference/rules.hpp"

namespace reference {

struct Variant {
  std::string name;  // "norm-twice"; several joined by '+'
  Rules rules;
};

// Every legal way to compute a run of ops of these kinds that differs from `profile`: one changed rule at a time, then pairs, and
// all forms of the activation quantiser. Exact mode only has the order of the inverse frequencies to choose.
std::vector<Variant> rule_variants(const Rules& profile, const std::set<model::OpKind>& kinds);

}  // namespace reference
