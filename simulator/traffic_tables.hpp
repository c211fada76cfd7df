// The tables of model accounting that are about traffic and load.
#pragma once

#include "simulator/cost_tables.hpp"

namespace simulator {

// Bytes of dispatch and combine by tokens, and how long the links need at least.
Table alltoall_table(const DescribedModel& described, const CostOptions& options);
// How many copies of a token leave its GPU and its node, by size of the expert-parallel group.
Table copies_table(const DescribedModel& described, const CostOptions& options);
Table allreduce_table(const DescribedModel& described);
// Throws InputError when the load says nothing.
Table capacity_table(const CostOptions& options);

}  // namespace simulator
