// Every tensor of a checkpoint in Hugging Face layout: name, shape, format. Derived from the config alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.hpp"
#include "model/dtype.hpp"
#include "model/tensor_view.hpp"

namespace model {

// What a tensor is to the model; decides which formats are acceptable in a file.
enum class TensorRole {
  kLinear,      // FP8 with a scale companion when the config quantises, else BF16 (FP32 accepted)
  kScale,       // companion of a kLinear: FP32 or E8M0, [ceil(out/128), ceil(in/128)]
  kBf16Linear,  // never FP8: embedding, head, router, eh_proj; BF16 or FP32
  kNorm,        // gain of an RMSNorm: BF16 or FP32
  kRouterBias,  // e_score_correction_bias: FP32 (BF16 accepted)
};

struct CatalogTensor {
  std::string name;  // "model.layers.3.mlp.gate.weight"
  Shape shape;
  DType dtype;  // as the published checkpoint stores it
  TensorRole role;
  std::string scale;    // name of the scale companion, empty if none
  int64_t layer = -1;   // -1 outside the layers; MTP layer k is num_hidden_layers + k
  int64_t expert = -1;  // routed expert it belongs to, -1 if none
};

// In the order of the layers, MTP layers (with their copies of embedding and head) included. For the published 671B config:
// 91,991 tensors, 684,531,386,000 elements, 688,574,839,360 bytes (model-spec of the R1 checkpoint inventory).
std::vector<CatalogTensor> tensor_catalog(const ModelConfig& config);

}  // namespace model
