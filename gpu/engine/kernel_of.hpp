// Which kernel of the engine computes an op.
#pragma once

#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/op_list.hpp"

namespace gpu {

// On a device with wgmma: "fp8_linear" for "layer.3.attn.q_a" in a step of the absorbed form; empty for an id that the engine does not
// compute in this form.
std::string kernel_of(const model::ModelConfig& config, model::AttentionForm form, const std::string& op_id);

// The kernels between the op's inputs and its own kernel whose results no op shows, so that their faults appear at this op: the quantiser
// of an FP8 linear's input, the places of the experts' rows. "rms_norm" for "layer.3.attn.q_a".
std::vector<std::string> kernels_in_front_of(const model::ModelConfig& config,
                                             model::AttentionForm form,
                                             const std::string& op_id);

}  // namespace gpu
