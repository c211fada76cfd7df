// Which rank of our engine has which rows of an op, where that follows from the routing and not from the layout alone.
#pragma once

#include <vector>

#include "golden/ranks.hpp"
#include "model/parallel_plan.hpp"

namespace tools {

// Copies of an expert share its tokens by gpu::chosen_copy; experts that are cut give their outputs where the tokens came from;
// sequence-parallel ranks have a share of the rows. `ranks`: the dump of each rank; plan and ranks must outlive the result.
golden::RowOwners row_owners_of(const model::ParallelPlan& plan, const std::vector<golden::Dump>& ranks);

}  // namespace tools
