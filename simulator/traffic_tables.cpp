#include "simulator/traffic_tables.hpp"

#include <fmt/format.h>

#include "simulator/traffic.hpp"

namespace simulator {
namespace {

constexpr double kKiB = 1024;

}  // namespace

Table alltoall_table(const DescribedModel& described, const CostOptions& options) {
  const CopyBytes copy = copy_bytes(described.hidden_size);
  Table table{
      .name = "alltoall",
      .title = fmt::format("Dispatch (FP8, {} B a copy and {} B of scales, not counted) and combine (BF16, {} B) with "
                           "every copy on the wire",
                           copy.dispatch,
                           copy.dispatch_scales,
                           copy.combine),
      .columns = {{"tokens_per_rank", "tokens", "per rank"},
                  {"dispatch_bytes_per_layer", "dispatch", "KiB/layer", kKiB, 0},
                  {"combine_bytes_per_layer", "combine", "KiB/layer", kKiB, 0},
                  {"bytes_per_layer", "both", "KiB/layer", kKiB, 0},
                  {"bytes_per_step", "both", "KiB/step", kKiB, 0},
                  {"ib_us_per_layer", "IB bound", "us/layer", 1, 2},
                  {"nvlink_us_per_layer", "NVLink bound", "us/layer", 1, 2}}};
  for (const int64_t tokens : options.batches) {
    const int64_t dispatch = tokens * described.experts_per_token * copy.dispatch;
    const int64_t combine = tokens * described.experts_per_token * copy.combine;
    const auto bytes = static_cast<double>(dispatch + combine);
    table.add({tokens,
               dispatch,
               combine,
               dispatch + combine,
               (dispatch + combine) * described.num_moe_layers,
               bytes / (options.ib_gb_per_s * 1e3),
               bytes / (options.nvlink_gb_per_s * 1e3)});
  }
  return table;
}

Table copies_table(const DescribedModel& described, const CostOptions& options) {
  const CopyBytes copy = copy_bytes(described.hidden_size);
  const auto bytes = static_cast<double>(copy.dispatch + copy.combine);
  const Router router{described.num_experts, described.experts_per_token, described.num_groups, described.kept_groups};
  Table table{
      .name = "copies",
      .title = fmt::format("Where the {} copies of a token go ({} of {} groups kept, {} GPUs a node, routing uniform)",
                           router.experts_per_token,
                           router.kept_groups,
                           router.num_groups,
                           options.gpus_per_node),
      .columns = {{"ep", "EP"},
                  {"num_nodes", "nodes"},
                  {"off_rank_frac", "off rank", "%", 0.01, 1},
                  {"off_node_frac", "off node", "%", 0.01, 1},
                  {"nodes_reached", "nodes reached", "mean", 1, 2},
                  {"most_nodes", "at most"},
                  {"per_copy_off_node", "sent over IB", "per copy", 1, 2},
                  {"per_node_off_node", "sent over IB", "per node", 1, 2},
                  {"per_copy_ib_us", "IB per copy", "us/token/layer", 1, 3},
                  {"per_node_ib_us", "IB per node", "us/token/layer", 1, 3},
                  {"nvlink_us", "NVLink", "us/token/layer", 1, 3}}};
  for (const int64_t ep : options.eps) {
    const CopySpread spread = copy_spread(router, ep, options.gpus_per_node);
    table.add({ep,
               spread.num_nodes,
               spread.off_rank_frac,
               spread.off_node_frac,
               spread.nodes_reached,
               spread.most_nodes,
               spread.per_copy_off_node,
               spread.per_node_off_node,
               spread.per_copy_off_node * bytes / (options.ib_gb_per_s * 1e3),
               spread.per_node_off_node * bytes / (options.ib_gb_per_s * 1e3),
               spread.per_copy_in_node * bytes / (options.nvlink_gb_per_s * 1e3)});
  }
  return table;
}

Table allreduce_table(const DescribedModel& described) {
  Table table{.name = "tp_allreduce",
              .title = "Beside it, tensor parallelism: ring all-reduces of a token's BF16 hidden state, two a layer",
              .columns = {{"tp", "TP"},
                          {"bytes_per_allreduce", "one", "B/GPU"},
                          {"bytes_per_layer", "layer", "KiB/GPU", kKiB, 1},
                          {"bytes_per_token", "all layers", "KiB/GPU", kKiB, 0}}};
  for (const int64_t tp : {2, 4, 8, 16}) {
    const int64_t bytes = ring_allreduce_bytes(2 * described.hidden_size, tp);
    table.add({tp, bytes, 2 * bytes, 2 * bytes * described.num_layers});
  }
  return table;
}

Table capacity_table(const CostOptions& options) {
  const CapacityCount count = count_capacity(options.load, options.capacity_factor);
  Table table{.name = "capacity",
              .title = "Capacity factor on the given load",
              .columns = {{"capacity_factor", "capacity factor"},
                          {"num_copies", "token copies"},
                          {"max_load", "largest load", "copies"},
                          {"capacity", "slots of an expert"},
                          {"num_padding", "empty slots"},
                          {"padding_frac", "of all slots", "%", 0.01, 2},
                          {"num_dropped", "dropped copies"},
                          {"dropped_frac", "of all copies", "%", 0.01, 2}},
              .is_record = true};
  table.add({options.capacity_factor,
             count.num_copies,
             count.max_load,
             count.capacity,
             count.num_padding,
             count.padding_frac(),
             count.num_dropped,
             count.dropped_frac()});
  return table;
}

}  // namespace simulator
