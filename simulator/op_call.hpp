// Calls of ops with what their tables are asked by: work and axes of one shape.
#pragma once

#include "model/config.hpp"
#include "simulator/calibration.hpp"
#include "simulator/op_work.hpp"

namespace simulator {

// weight_bytes_each 1: FP8, 2: BF16.
OpCall gemm_call(const GemmShape& shape, int weight_bytes_each);
// Tables have whole experts: with expert_tp above 1 only the constants answer.
OpCall experts_call(const model::ModelConfig& config, double active, double rows, double expert_tp);
// The call that a table's axes (op_axes()) name, shapes those of `config`.
OpCall call_at(OpFamily family, const OpAxes& axes, const model::ModelConfig& config);
OpCall all_reduce_call(double message_bytes, int64_t num_ranks);

}  // namespace simulator
