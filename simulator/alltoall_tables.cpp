#include "simulator/alltoall_tables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "model/check.hpp"
#include "simulator/dispatch_matrix.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/expert_sampler.hpp"
#include "simulator/layer_traffic.hpp"
#include "simulator/skew_tables.hpp"
#include "simulator/traffic.hpp"

namespace simulator {
namespace {

struct Sampled {
  std::vector<double> slowest_dispatch_us;
  std::vector<double> slowest_combine_us;
  double waiting_us = 0;  // of the average rank, dispatch and combine
};

Sampled sample(const DescribedModel& described,
               const AllToAllOptions& options,
               const AllToAll& all_to_all,
               AllToAllBackend backend,
               int64_t ep,
               int64_t tokens) {
  const Router router = router_of(described);
  const int64_t num_slots = (router.num_experts + ep - 1) / ep * ep;
  const Placement placement = contiguous_placement(router.num_experts, ep, num_slots, false);
  Sampled sampled;
  // A new layer's popularity now and then, so that one draw does not decide.
  constexpr int64_t kSamplesPerLayer = 10;
  const int64_t num_layers = (options.num_samples + kSamplesPerLayer - 1) / kSamplesPerLayer;
  const auto popularity = model_popularity(
      options.skew, router.num_experts, router.experts_per_token, ep * tokens, num_layers, 0, options.seed);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const std::vector<double>& shares = popularity[static_cast<size_t>(layer)];
    const LayerTraffic traffic(all_to_all, backend, router, placement, tokens, shares, options.seed);
    for (int64_t i = 0; i < kSamplesPerLayer; ++i) {
      constexpr int64_t kStream = 2;
      CounterRandom random(options.seed, kStream, layer, i);
      const auto counts = sample_expert_counts(shares, ep * tokens, router.experts_per_token, random);
      std::vector<double> rows;
      for (const RankLoad& load : traffic.loads(counts, i)) {
        rows.push_back(static_cast<double>(load.num_tokens));
      }
      double dispatch_max = 0;
      double combine_max = 0;
      double sum = 0;
      for (const TierCopies& copies : traffic.copies(rows)) {
        const double dispatch = all_to_all.dispatch_us(copies);
        const double combine = all_to_all.combine_us(copies);
        dispatch_max = std::max(dispatch_max, dispatch);
        combine_max = std::max(combine_max, combine);
        sum += dispatch + combine;
      }
      sampled.slowest_dispatch_us.push_back(dispatch_max);
      sampled.slowest_combine_us.push_back(combine_max);
      sampled.waiting_us += (dispatch_max + combine_max - sum / static_cast<double>(ep)) /
                            static_cast<double>(num_layers * kSamplesPerLayer);
    }
  }
  return sampled;
}

TraceLayer drawn_tokens(const MatrixOptions& options) {
  constexpr int64_t kStream = 6;
  const std::vector<double> shares = layer_popularity(options.skew,
                                                      options.router.num_experts,
                                                      options.router.experts_per_token,
                                                      options.num_ranks * options.tokens_per_rank,
                                                      0,
                                                      options.seed);
  CounterRandom random(options.seed, kStream);
  TraceLayer layer;
  for (int64_t token = 0; token < options.num_ranks * options.tokens_per_rank; ++token) {
    layer.tokens.push_back(
        {.rank = token / options.tokens_per_rank, .experts = route_token(options.router, shares, {}, random)});
  }
  return layer;
}

}  // namespace

std::vector<Table> alltoall_tables(const DescribedModel& described, const AllToAllOptions& options) {
  if (described.num_experts == 0) {
    model::throw_input_error("alltoall --model {}: a dense model, expected one with experts", described.name);
  }
  for (const int64_t ep : options.eps) {
    if (ep < 2 || ep > 4096) {
      model::throw_input_error("--ep {}: expected 2 to 4096", ep);
    }
  }
  for (const int64_t tokens : options.tokens) {
    if (tokens < 1 || tokens > 1 << 20) {
      model::throw_input_error("--tokens {}: expected 1 to {}", tokens, 1 << 20);
    }
  }
  if (options.num_samples < 1 || options.num_samples > 1000000) {
    model::throw_input_error("--samples {}: expected 1 to 1000000", options.num_samples);
  }
  Table table{.name = "alltoall",
              .title = fmt::format("Dispatch (FP8 and scales) and combine (BF16) of one layer, {}; skew: {}",
                                   options.hardware.title,
                                   skew_text(options.skew)),
              .columns = {{"backend", "back end"},
                          {"ep", "EP"},
                          {"num_nodes", "NVLink domains"},
                          {"tokens_per_rank", "tokens", "per rank"},
                          {"network_copies", "copies by network", "per rank", 1, 1},
                          {"nvlink_copies", "copies by NVLink", "per rank", 1, 1},
                          {"dispatch_bytes", "dispatch", "KiB/rank", 1024, 0},
                          {"combine_bytes", "combine", "KiB/rank", 1024, 0},
                          {"dispatch_us", "dispatch", "us, even", 1, 1},
                          {"combine_us", "combine", "us, even", 1, 1},
                          {"wire_us", "of it wire", "us, even", 1, 1},
                          {"interval_pct", "90 % within", "+-%", 1, 0},
                          {"dispatch_us_p50", "slowest dispatch", "us p50", 1, 1},
                          {"dispatch_us_p99", "slowest dispatch", "us p99", 1, 1},
                          {"combine_us_p50", "slowest combine", "us p50", 1, 1},
                          {"combine_us_p99", "slowest combine", "us p99", 1, 1},
                          {"wait_us", "waiting", "us mean", 1, 1},
                          {"source", "source", "", 1, -1, true}}};
  for (const AllToAllBackend backend : options.backends) {
    check_has_phases(backend);
    for (const int64_t ep : options.eps) {
      const AllToAll all_to_all({.hardware = options.hardware,
                                 .backend = backend,
                                 .link = options.link,
                                 .num_ranks = ep,
                                 .hidden_size = described.hidden_size,
                                 .num_experts = described.num_experts});
      for (const int64_t tokens : options.tokens) {
        const TierCopies copies =
            even_copies(all_to_all, backend, ep, described.experts_per_token, static_cast<double>(tokens));
        const Sampled sampled = sample(described, options, all_to_all, backend, ep, tokens);
        table.add({std::string(backend_name(backend)),
                   ep,
                   all_to_all.num_nodes(),
                   tokens,
                   copies.network,
                   copies.nvlink,
                   (copies.network + copies.nvlink) * all_to_all.dispatch_bytes_per_copy(),
                   (copies.network + copies.nvlink) * all_to_all.combine_bytes_per_copy(),
                   all_to_all.dispatch_us(copies),
                   all_to_all.combine_us(copies),
                   all_to_all.dispatch_wire_us(copies) + all_to_all.combine_wire_us(copies),
                   100 * all_to_all.basis().interval_frac,
                   quantile(sampled.slowest_dispatch_us, 0.5),
                   quantile(sampled.slowest_dispatch_us, 0.99),
                   quantile(sampled.slowest_combine_us, 0.5),
                   quantile(sampled.slowest_combine_us, 0.99),
                   sampled.waiting_us,
                   all_to_all.basis().source});
      }
    }
  }
  return {table};
}

std::vector<Table> dispatch_matrix_tables(const MatrixOptions& options) {
  if (options.num_ranks < 1 || options.num_ranks > 4096 || options.tokens_per_rank < 1 ||
      options.tokens_per_rank > 65536) {
    model::throw_input_error(
        "dispatch matrix of {} ranks with {} tokens: expected 1 to 4096 ranks, 1 to 65536 tokens each",
        options.num_ranks,
        options.tokens_per_rank);
  }
  const TraceLayer layer = options.trace ? *options.trace : drawn_tokens(options);
  const int64_t num_experts = options.trace ? options.num_experts : options.router.num_experts;
  const int64_t num_slots = (num_experts + options.num_ranks - 1) / options.num_ranks * options.num_ranks;
  const Placement placement = contiguous_placement(num_experts, options.num_ranks, num_slots, false);
  const DispatchMatrix matrix = dispatch_matrix(layer, placement, options.ranks_per_node);
  const CopyBytes bytes = copy_bytes(options.hidden_size);
  const int64_t dispatch_bytes = bytes.dispatch + bytes.dispatch_scales;

  Table tokens{.name = "tokens",
               .title = "Tokens and the experts they chose",
               .columns = {{"token", "token"}, {"rank", "on rank"}, {"experts", "experts"}, {"to_ranks", "on ranks"}}};
  const int64_t block = (static_cast<int64_t>(layer.tokens.size()) + options.num_ranks - 1) / options.num_ranks;
  for (size_t i = 0; i < layer.tokens.size(); ++i) {
    const RoutedToken& token = layer.tokens[i];
    std::vector<int64_t> ranks;
    for (const int64_t expert : token.experts) {
      ranks.push_back(expert / placement.slots_per_rank());
    }
    const auto index = static_cast<int64_t>(i);
    tokens.add({index,
                token.rank >= 0 ? token.rank : index / block,
                fmt::format("{}", fmt::join(token.experts, " ")),
                fmt::format("{}", fmt::join(ranks, " "))});
  }

  Table copies{.name = "matrix",
               .title = "Copies from rank (row) to rank (column); the diagonal stays",
               .columns = {{"from", "from"}}};
  for (int64_t to = 0; to < options.num_ranks; ++to) {
    copies.columns.push_back({fmt::format("to_{}", to), fmt::format("to {}", to)});
  }
  Table ranks{.name = "ranks",
              .title = "Ranks",
              .columns = {{"rank", "rank"},
                          {"rows", "rows"},
                          {"active_experts", "active experts"},
                          {"copies_sent", "sent", "copies"},
                          {"copies_received", "received", "copies"},
                          {"dispatch_bytes_sent", "dispatch out", "B"},
                          {"dispatch_bytes_received", "dispatch in", "B"},
                          {"combine_bytes_sent", "combine out", "B"},
                          {"combine_bytes_received", "combine in", "B"},
                          {"tokens_sent_once_per_rank", "sent", "once a rank"},
                          {"tokens_sent_once_per_node", "sent", "once a node"}}};
  std::vector<std::set<int64_t>> active(static_cast<size_t>(options.num_ranks));
  for (const RoutedToken& token : layer.tokens) {
    for (const int64_t expert : token.experts) {
      active[static_cast<size_t>(expert / placement.slots_per_rank())].insert(expert);
    }
  }
  for (size_t rank = 0; rank < matrix.copies.size(); ++rank) {
    std::vector<Cell> row{static_cast<int64_t>(rank)};
    int64_t sent = 0;
    int64_t received = 0;
    int64_t once = 0;
    for (size_t other = 0; other < matrix.copies.size(); ++other) {
      row.emplace_back(matrix.copies[rank][other]);
      if (other != rank) {
        sent += matrix.copies[rank][other];
        received += matrix.copies[other][rank];
        once += matrix.tokens[rank][other];
      }
    }
    copies.add(row);
    ranks.add({static_cast<int64_t>(rank),
               received + matrix.copies[rank][rank],
               static_cast<int64_t>(active[rank].size()),
               sent,
               received,
               sent * dispatch_bytes,
               received * dispatch_bytes,
               received * bytes.combine,
               sent * bytes.combine,
               once,
               matrix.node_copies_sent[rank]});
  }
  return {tokens, copies, ranks};
}

}  // namespace simulator
