// x W^T in FP32 with the sums in whatever order is quick: what mode `fast` does with linears. Only docs/bounds.md ties it to the
// written order; on one machine and build it is still the same every time, whatever the number of threads.
#pragma once

#include <vector>

#include "reference/panel_matmul.hpp"
#include "reference/weight_matrix.hpp"

namespace reference {

// As panel_matmul. Order: one running sum in each 128-block, ascending in k, each product fused where the machine fuses; blocks are added
// in ascending order, each times both scales of quantised rows. Fewer rows than a vector of the machine holds take the written order.
std::vector<float> any_order_matmul(const BlockedRows& x, const WeightMatrix& weight, WeightForm form, int num_threads);

}  // namespace reference
