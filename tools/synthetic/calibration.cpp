#include "tools/synthetic/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "model/check.hpp"
#include "tools/synthetic/philox.hpp"

namespace tools::synthetic {
namespace {

// The standard deviation at the published width is scaled by sqrt(published fan-in / fan-in), which leaves the outputs as large as
// they are there. Trained weights are aligned with their inputs and random ones are not: where the published size would make a
// random model's outputs vanish, `boost` brings them back to about 1.
// Source of the standard deviations and of the gains of q_a and kv_a: tests README of tenstorrent/tt-metal's DeepSeek-V3
// demo, their analysis of the published checkpoint. Rows with boost 1 whose comment says so, and the other gains, are ours.
struct LinearRow {
  std::string_view kind;
  double smallest_std;
  double largest_std;
  double fan_in;
  double boost;
};

constexpr std::array<LinearRow, 19> kLinears{{
    {"self_attn.q_a_proj", 0.0187, 0.0187, 7168, 1},
    {"self_attn.q_b_proj", 0.0085, 0.0085, 1536, 7},
    {"self_attn.q_proj", 0.0187, 0.0187, 7168, 1.75},  // ours: after q_a
    {"self_attn.kv_a_proj_with_mqa", 0.0390, 0.0390, 7168, 1},
    {"self_attn.kv_b_proj", 0.0049, 0.0049, 512, 900},  // its input has the gain 0.007
    {"self_attn.o_proj", 0.0059, 0.0059, 16384, 1},
    {"mlp.gate_proj", 0.0035, 0.0035, 7168, 10},
    {"mlp.up_proj", 0.0035, 0.0035, 7168, 10},
    {"mlp.down_proj", 0.0055, 0.0055, 18432, 1},
    {"mlp.experts.gate_proj", 0.0024, 0.0049, 7168, 10},
    {"mlp.experts.up_proj", 0.0023, 0.0048, 7168, 10},
    {"mlp.experts.down_proj", 0.0038, 0.0074, 2048, 3},
    {"mlp.shared_experts.gate_proj", 0.0040, 0.0040, 7168, 10},
    {"mlp.shared_experts.up_proj", 0.0038, 0.0038, 7168, 10},
    {"mlp.shared_experts.down_proj", 0.0060, 0.0060, 2048, 3},
    {"mlp.gate", 0.0068, 0.0068, 7168, 8},
    {"eh_proj", 0.0117, 0.0117, 14336, 1},         // ours: output as large as the embedding
    {"lm_head", 0.0197, 0.0197, 7168, 1},          // ours: logits of about 2.6
    {"shared_head.head", 0.0197, 0.0197, 7168, 1}  // a copy of the main one
}};

struct NormRow {
  std::string_view kind;
  Distribution gain;
};

constexpr std::array<NormRow, 8> kNorms{{
    {"self_attn.q_a_layernorm", {0.444, 0.083}},
    {"self_attn.kv_a_layernorm", {0.007, 0.0076}},
    {"input_layernorm", {0.38, 0.14}},
    {"post_attention_layernorm", {0.32, 0.115}},
    {"enorm", {0.61, 0.17}},
    {"hnorm", {0.28, 0.12}},
    {"norm", {1.5, 0.45}},
    {"shared_head.norm", {1.2, 0.4}},
}};

constexpr Distribution kEmbedding{0, 0.7};  // ours: the size of what the blocks add to it

void erase_between(std::string& text, std::string_view before, char end) {
  const size_t begin = text.find(before);
  if (begin != std::string::npos) {
    const size_t number = begin + before.size();
    text.erase(number, text.find(end, number) + 1 - number);
  }
}

}  // namespace

std::string kind_of(const model::CatalogTensor& tensor) {
  std::string kind = tensor.name;
  erase_between(kind, ".experts.", '.');
  erase_between(kind, "model.layers.", '.');
  for (const std::string_view prefix : {"model.layers.", "model."}) {
    if (kind.starts_with(prefix)) {
      kind.erase(0, prefix.size());
    }
  }
  constexpr std::string_view kWeight = ".weight";
  if (kind.ends_with(kWeight)) {
    kind.erase(kind.size() - kWeight.size());
  }
  return kind;
}

Distribution distribution_of(const model::CatalogTensor& tensor, uint64_t seed) {
  const std::string kind = kind_of(tensor);
  if (kind == "embed_tokens") {
    return kEmbedding;
  }
  const auto norm = std::ranges::find(kNorms, kind, &NormRow::kind);
  if (norm != kNorms.end()) {
    return norm->gain;
  }
  const auto row = std::ranges::find(kLinears, kind, &LinearRow::kind);
  CHECK(row != kLinears.end());
  const double where = Draws(seed, tensor.name + "#std").uniform(0);
  const double published = row->smallest_std + (row->largest_std - row->smallest_std) * where;
  return {0, published * row->boost * std::sqrt(row->fan_in / static_cast<double>(tensor.shape[1]))};
}

}  // namespace tools::synthetic
