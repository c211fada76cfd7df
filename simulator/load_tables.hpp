// Loads as `dsv3-sim skew --loads` prints them: how full every expert and every rank of every MoE layer is on average.
#pragma once

#include <vector>

#include "simulator/skew_tables.hpp"

namespace simulator {

// "expert_load": a row a layer, a column an expert. "rank_load": a row a layer and placement (in order, EPLB), a column a rank, for the
// first EP size of the options. Values are shares of the token copies over the mean share: 1 is a fair one. Throws as skew_tables().
std::vector<Table> load_tables(const DescribedModel& described, const SkewOptions& options);

}  // namespace simulator
