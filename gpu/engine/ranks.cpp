#include "gpu/engine/ranks.hpp"

#include "gpu/portable/types.hpp"
#include "model/check.hpp"

namespace gpu {
namespace {

comm::ExchangeFormat exchange_format(const model::ParallelPlan& plan, int64_t max_expert_rows) {
  const model::ModelConfig& config = plan.config;
  const bool fp8 = config.quantization.has_value();
  std::vector<int64_t> first_expert;
  for (int64_t rank = 0; rank < plan.layout.ep; ++rank) {
    first_expert.push_back(plan.experts(rank).begin);
  }
  first_expert.push_back(config.n_routed_experts);
  return {.first_expert = std::move(first_expert),
          .k = static_cast<int>(config.num_experts_per_tok),
          .row_bytes = config.hidden_size * static_cast<int64_t>(fp8 ? sizeof(fp8_e4m3) : sizeof(bf16)),
          .num_scales = fp8 ? (config.hidden_size + kScaleBlockLen - 1) / kScaleBlockLen : 0,
          .output_bytes = config.hidden_size * static_cast<int64_t>(sizeof(bf16)),
          .capacity = max_expert_rows};
}

}  // namespace

Ranks connect(comm::Communicator& world, const model::ParallelPlan& plan, int64_t max_expert_rows, Backend& backend) {
  const model::ParallelLayout& layout = plan.layout;
  CHECK_EQ(static_cast<int64_t>(world.size()), layout.num_ranks());
  const int rank = world.rank();
  const auto stage_len = static_cast<int>(layout.stage_len());
  const auto in_order = [&backend](std::function<void()> work) { backend.run_on_host(std::move(work)); };
  Ranks ranks{.world = &world};
  if (layout.tp > 1) {
    ranks.tp = world.split(rank / static_cast<int>(layout.tp), rank, "tp");
    ranks.tp->set_queue(in_order);
  }
  if (layout.ep > 1) {
    ranks.ep = world.split(rank / static_cast<int>(layout.ep), rank, "ep");
    ranks.exchange = std::make_unique<comm::TokenExchange>(*ranks.ep, exchange_format(plan, max_expert_rows));
  }
  if (layout.pp > 1) {
    ranks.pp = world.split(rank % stage_len, rank, "pp");
    ranks.pp->set_queue(in_order);
  }
  return ranks;
}

}  // namespace gpu
