#include "simulator/load_tables.hpp"

#include <fmt/format.h>

namespace simulator {
namespace {

// [ranks]: shares of the copies; the slots of an expert share its tokens evenly.
std::vector<double> rank_shares(const std::vector<double>& popularity, const Placement& placement) {
  std::vector<double> slots_of(popularity.size(), 0);
  for (const int64_t expert : placement.expert_of_slot) {
    if (expert != Placement::kEmptySlot) {
      slots_of[static_cast<size_t>(expert)] += 1;
    }
  }
  std::vector<double> shares(static_cast<size_t>(placement.num_ranks), 0);
  for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int64_t expert = placement.expert_of_slot[static_cast<size_t>(slot)];
    if (expert != Placement::kEmptySlot) {
      const auto e = static_cast<size_t>(expert);
      shares[static_cast<size_t>(placement.rank_of_slot(slot))] += popularity[e] / slots_of[e];
    }
  }
  return shares;
}

void add_columns(Table& table, const char* what, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    table.columns.push_back({fmt::format("{}_{}", what, i), fmt::format("{} {}", what, i), {}, 1, 2});
  }
}

void add_shares(std::vector<Cell>& row, const std::vector<double>& shares) {
  for (const double share : shares) {
    row.emplace_back(share * static_cast<double>(shares.size()));
  }
}

}  // namespace

std::vector<Table> load_tables(const DescribedModel& described, const SkewOptions& options) {
  const std::vector<Placement> balanced = eplb_layers(described, options);
  const int64_t ep = options.eps.front();
  const auto popularity = model_popularity(options.skew,
                                           described.num_experts,
                                           described.experts_per_token,
                                           ep * options.batches.front(),
                                           described.num_moe_layers,
                                           options.layer_correlation,
                                           options.seed);
  const int64_t num_slots = options.num_redundant ? described.num_experts + *options.num_redundant
                                                  : (described.num_experts + ep - 1) / ep * ep;
  const Placement plain = contiguous_placement(described.num_experts, ep, num_slots, options.num_redundant.has_value());
  Table experts{.name = "expert_load", .title = "Load of each expert over the mean", .columns = {{"layer", "layer"}}};
  add_columns(experts, "expert", described.num_experts);
  Table ranks{.name = "rank_load",
              .title = fmt::format("Load of each of {} ranks over the mean", ep),
              .columns = {{"placement", "placement"}, {"layer", "layer"}}};
  add_columns(ranks, "rank", ep);
  const int64_t first_layer = described.num_layers - described.num_moe_layers;
  for (size_t i = 0; i < popularity.size(); ++i) {
    std::vector<Cell> row{first_layer + static_cast<int64_t>(i)};
    add_shares(row, popularity[i]);
    experts.add(std::move(row));
  }
  for (const char* name : {"in order", "EPLB"}) {
    for (size_t i = 0; i < popularity.size(); ++i) {
      std::vector<Cell> row{std::string(name), first_layer + static_cast<int64_t>(i)};
      add_shares(row, rank_shares(popularity[i], std::string_view(name) == "EPLB" ? balanced[i] : plain));
      ranks.add(std::move(row));
    }
  }
  return {experts, ranks};
}

}  // namespace simulator
