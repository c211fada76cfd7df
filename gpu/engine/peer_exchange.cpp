#include "gpu/engine/peer_exchange.hpp"

#include <exception>
#include <string>
#include <utility>

#include "gpu/engine/ranks.hpp"
#include "model/check.hpp"

namespace gpu {
namespace {

// Where every rank has what this one has at `mine`; null stays null.
template <typename T>
std::vector<T*> everywhere(comm::Communicator& ranks, T* mine) {
  std::vector<T*> result(static_cast<size_t>(ranks.size()), nullptr);
  if (mine == nullptr) {
    return result;
  }
  const std::vector<void*> found = ranks.peers(mine);
  if (found.empty()) {
    model::throw_input_error("the ranks do not reach each other's memory: expected threads, or GPUs of one machine");
  }
  for (size_t rank = 0; rank < result.size(); ++rank) {
    result[rank] = static_cast<T*>(found[rank]);
  }
  return result;
}

template <typename T>
void upload(Backend& backend, T* to, const std::vector<T>& values) {
  backend.upload(to, values.data(), static_cast<int64_t>(values.size() * sizeof(T)));
  backend.synchronize();
}

}  // namespace

PeerExchange::PeerExchange(const model::ParallelPlan& plan,
                           const Shard& shard,
                           int64_t max_tokens,
                           const Workspace& workspace,
                           MemoryPlan& memory)
    : ws_(workspace),
      num_exceptions_(std::uncaught_exceptions()),
      num_experts_(static_cast<int>(plan.config.n_routed_experts)),
      num_own_experts_(static_cast<int>(shard.num_experts)),
      is_fp8_(plan.config.quantization.has_value()) {
  CHECK_EQ(plan.layout.expert_tp(), 1);
  group_.max_tokens = max_tokens;
  group_.num_ranks = static_cast<int>(plan.layout.ep);
  group_.k = static_cast<int>(plan.config.num_experts_per_tok);
  group_.hidden = static_cast<int>(plan.config.hidden_size);
  const int64_t num_ranks = group_.num_ranks;
  if (is_fp8_) {
    const int64_t num_scales = (group_.hidden + kScaleBlockLen - 1) / kScaleBlockLen;
    memory.add(sent_scales_, num_ranks * max_tokens * num_scales, "sent_scales");
  }
  memory.add(flags_, 2 * num_ranks + 1, "exchange.flags");
  memory.add(arrivals_, 1, "exchange.arrivals");
  memory.add(inboxes_, num_ranks, "exchange.inboxes");
  memory.add(results_, num_ranks, "exchange.results");
  const auto placements = placements_of(plan);
  places_.resize(placements.size());
  for (size_t layer = 0; layer < placements.size(); ++layer) {
    const std::string name = "places." + std::to_string(layer);
    memory.add(places_[layer].first_copy, static_cast<int64_t>(placements[layer].first_copy.size()), name);
    memory.add(places_[layer].place_of_copy, static_cast<int64_t>(placements[layer].place_of_copy.size()), name);
    places_[layer].slots_per_rank = placements[layer].slots_per_rank;
  }
}

PeerExchange::~PeerExchange() {
  if (ranks_ == nullptr || std::uncaught_exceptions() > num_exceptions_) {
    return;
  }
  try {
    ranks_->barrier();
    backend_->synchronize();
  } catch (const std::exception&) {  // the rank that failed has said why
  }
}

TokenInbox PeerExchange::own_inbox() const {
  return {ws_.received_codes, sent_scales_, ws_.received, ws_.received_experts, flags_};
}

void PeerExchange::connect(std::unique_ptr<comm::Communicator> ranks,
                           const std::vector<ExpertPlacement>& placements,
                           Backend& backend) {
  CHECK_EQ(ranks->size(), group_.num_ranks);
  const auto num_ranks = static_cast<size_t>(group_.num_ranks);
  const TokenInbox mine = own_inbox();
  const auto codes = everywhere(*ranks, mine.codes);
  const auto scales = everywhere(*ranks, mine.scales);
  const auto values = everywhere(*ranks, mine.values);
  const auto slots = everywhere(*ranks, mine.slots);
  const auto flags = everywhere(*ranks, flags_);
  const auto row_of_choice = everywhere(*ranks, ws_.row_of_slot);
  const auto expert_rows = everywhere(*ranks, ws_.expert_rows);
  std::vector<TokenInbox> inboxes;
  std::vector<ExpertResults> results;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    inboxes.push_back({codes[rank], scales[rank], values[rank], slots[rank], flags[rank]});
    results.push_back({row_of_choice[rank], expert_rows[rank], flags[rank] + num_ranks});
  }
  upload(backend, inboxes_, inboxes);
  upload(backend, results_, results);
  for (size_t layer = 0; layer < places_.size(); ++layer) {
    if (places_[layer].first_copy != nullptr) {
      upload(backend, places_[layer].first_copy, placements[layer].first_copy);
      upload(backend, places_[layer].place_of_copy, placements[layer].place_of_copy);
    }
  }
  backend.clear(flags_, static_cast<int64_t>((2 * num_ranks + 1) * sizeof(uint32_t)));
  backend.clear(arrivals_, sizeof(int32_t));
  backend.synchronize();
  group_.inboxes = inboxes_;
  group_.results = results_;
  group_.epoch = flags_ + 2 * num_ranks;
  group_.rank = ranks->rank();
  backend_ = &backend;
  ranks_ = std::move(ranks);
}

ExpertPlaces PeerExchange::places(size_t layer) const {
  const Places& of_layer = places_[layer];
  return {of_layer.first_copy, of_layer.place_of_copy, num_experts_, of_layer.slots_per_rank};
}

void PeerExchange::dispatch(size_t layer, const Tokens& tokens) {
  backend_->launch(DispatchArguments{.group = group_,
                                     .places = places(layer),
                                     .codes = tokens.codes,
                                     .scales = tokens.scales,
                                     .values = tokens.values,
                                     .topk_ids = tokens.topk_ids,
                                     .arrivals = arrivals_,
                                     .num_tokens = tokens.count,
                                     .scale_stride = tokens.scale_stride});
  backend_->launch(ReceiveArguments{.group = group_,
                                    .own = own_inbox(),
                                    .row_of_choice = ws_.row_of_slot,
                                    .scales = ws_.received_scales,
                                    .token_of_row = ws_.token_of_row,
                                    .num_valid = ws_.num_valid,
                                    .slots_per_rank = num_own_experts_});
}

void PeerExchange::combine(size_t layer, const Sums& sums) {
  backend_->launch(PullCombineArguments{.group = group_,
                                        .places = places(layer),
                                        .topk_ids = sums.topk_ids,
                                        .topk_weights = sums.topk_weights,
                                        .shared = sums.shared,
                                        .out = sums.out,
                                        .num_tokens = sums.count});
}

}  // namespace gpu
