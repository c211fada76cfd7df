// One decode step of a deployment as op records (model/op_record.hpp), op by op: what the simulator predicts and what the hardware
// allows at most.
#pragma once

#include <string>
#include <vector>

#include "model/op_record.hpp"
#include "simulator/calibration.hpp"
#include "simulator/serving.hpp"

namespace simulator {

// The step of the steady state, with whole numbers of sequences and cached tokens. Rows of source `limit` are the floors of
// walk(); rows of source `simulated` add up to the step of StepModel::decode(). That knows modules, not ops: the time of a module is
// shared out over its ops in proportion to their floors, its fixed time evenly. What overlap hides of an exchange is left out of its time. What belongs to no op has a row of its own:
// layer.L.moe.waiting, mtp.drafting, engine.*. Header lines are key=value. Throws InputError where serve() or walk() do.
model::OpRecordFile step_records(const Deployment& deployment,
                                 const std::vector<ChosenFit>& fits,
                                 MoeCurves& curves,
                                 const std::string& commit);

}  // namespace simulator
