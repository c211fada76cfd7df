// How large the weights of each kind are: mean and standard deviation, so that activations stay near 1 at every width.
#pragma once

#include <cstdint>
#include <string>

#include "model/tensor_catalog.hpp"

namespace tools::synthetic {

// A tensor's name without layer, expert number and ".weight": "self_attn.q_a_proj", "mlp.experts.up_proj", "embed_tokens".
[[nodiscard]] std::string kind_of(const model::CatalogTensor& tensor);

struct Distribution {
  double mean = 0;
  double std = 0;
};

// Of a linear weight (embedding, head and router included) or the gain of a norm. Routed experts differ in size, by the seed.
[[nodiscard]] Distribution distribution_of(const model::CatalogTensor& tensor, uint64_t seed);

// Ratio of an outlier channel of the embedding to the others.
inline constexpr double kOutlierRatio = 5;
// Router bias: sizes of the ordinary ones, and those of the experts that every token and no token selects. With scores in (0, 1),
// 3.5 keeps the expert's group whatever else is in it, and -1.6 is below every other biased score.
inline constexpr double kSmallestBias = 0.05;
inline constexpr double kLargestBias = 0.45;
inline constexpr double kEveryonesBias = 3.5;
inline constexpr double kNobodysBias = -1.6;
// Without a bias the first MoE layer's router does it: the weight that the two rows give the positive outlier channel, and the
// factor on all its other weights, which keeps the second choice visible behind the first.
inline constexpr double kSkewWeight = 4;
inline constexpr double kSkewedRouterFactor = 0.5;

}  // namespace tools::synthetic
