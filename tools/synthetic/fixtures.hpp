// The generated fixtures: a config each, and what is special about its weights. Data only. docs/fixtures.md says what each is for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"

namespace tools::synthetic {

// Elements of a tensor that are zero; the ends may lie beyond the tensor's.
struct ZeroRegion {
  std::string_view kind;  // of the tensor, see calibration.hpp
  int64_t layer = -1;     // -1: every layer
  int64_t expert = -1;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;
};

// One token that makes every router score of the first MoE layer underflow to zero: its embedding alone uses `channel`, no block
// writes there, and the router reads it with a large negative weight.
struct UnderflowToken {
  int64_t token = 0;
  int64_t channel = 0;
  double activation = 0;
  double router_weight = 0;
};

struct ScaledToken {
  int64_t token = 0;
  double factor = 1;  // times the row of the embedding
};

struct Fixture {
  std::string_view name;
  model::ModelConfig config;
  std::vector<ZeroRegion> zeros;
  std::vector<ScaledToken> scaled_tokens;
  std::optional<UnderflowToken> underflow;
  bool pooled = false;           // matrices are windows of a pool (pool.hpp): for models too large to draw
  double latent_row_factor = 1;  // times the rows of kv_a that make the latent: small ones let rms_norm_eps show
};

// In the first MoE layer, every token selects expert 3, and none selects expert n_routed_experts - 2.
inline constexpr int64_t kEveryonesExpert = 3;
inline constexpr int64_t kNobodysExpertFromEnd = 2;
// Channels of the residual stream whose embeddings are some times larger than the others, with one sign: a positive one, and
// hidden_size - 5, a negative one.
inline constexpr int64_t kPositiveOutlier = 17;
inline constexpr int64_t kNegativeOutlierFromEnd = 5;

[[nodiscard]] const std::vector<Fixture>& all_fixtures();
// Null if there is none of that name.
[[nodiscard]] const Fixture* find_fixture(std::string_view name);

}  // namespace tools::synthetic
