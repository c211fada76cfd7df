#include "simulator/rank_layout.hpp"

#include <fmt/format.h>

#include <string>

#include "model/check.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

bool is_dense_possible(const model::ModelConfig& config, const model::ParallelLayout& layout, int64_t ranks) {
  return ranks > 0 && (ranks % layout.tp == 0 || layout.tp % ranks == 0) && layout.stage_len() % ranks == 0 &&
         config.intermediate_size % ranks == 0;
}

}  // namespace

void check_rank(const model::ModelConfig& config, const RankLayout& rank) {
  const model::ParallelLayout& layout = rank.layout;
  model::ModelConfig placed = config;
  placed.n_routed_experts = rank.num_placed_experts(config);
  check_layout(placed, layout, rank.redundant_experts);
  if (rank.shared_expert == SharedExpertPlace::kSharded && layout.tp == 1) {
    model::throw_input_error("--shared-expert sharded: tp is 1 and it is cut over tp; replicated or routed would work");
  }
  if (!is_dense_possible(config, layout, rank.dense_ranks())) {
    std::string possible;
    for (int64_t ranks = 1; ranks <= layout.stage_len(); ++ranks) {
      possible +=
          is_dense_possible(config, layout, ranks) ? fmt::format("{}{}", possible.empty() ? "" : ", ", ranks) : "";
    }
    model::throw_input_error("--dense-tp {}: with {} and {} columns of a dense layer, expected one of {}",
                             rank.dense_ranks(),
                             layout_text(layout),
                             config.intermediate_size,
                             possible);
  }
}

}  // namespace simulator
