#include "simulator/skew_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/check.hpp"
#include "simulator/bias_control.hpp"
#include "simulator/eplb.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/expert_sampler.hpp"
#include "simulator/expert_time.hpp"

namespace simulator {
namespace {

constexpr double kGb = 1e9;
constexpr int64_t kDefaultRedundant = 32;  // the V3 report's prefill and the public production layouts

void check_options(const DescribedModel& described, const SkewOptions& options) {
  if (described.num_experts == 0) {
    model::throw_input_error("skew --model {}: a dense model, expected one with experts", described.name);
  }
  for (const int64_t value : options.eps) {
    if (value < 1 || value > 4096) {
      model::throw_input_error("--ep {}: expected 1 to 4096", value);
    }
  }
  for (const int64_t value : options.batches) {
    if (value < 1 || value > 65536) {
      model::throw_input_error("--batch {}: expected 1 to 65536 tokens of a rank", value);
    }
  }
  if (options.num_steps < 1 || options.num_steps > 100000) {
    model::throw_input_error("--steps {}: expected 1 to 100000", options.num_steps);
  }
  if (options.num_redundant && *options.num_redundant < 0) {
    model::throw_input_error("--redundant-experts {}: expected 0 or more", *options.num_redundant);
  }
  if (options.layer_correlation < 0 || options.layer_correlation > 1 || options.stale_correlation < 0 ||
      options.stale_correlation > 1 || !(options.drift_steps > 0)) {
    model::throw_input_error("correlations: expected 0 to 1, and --drift-steps above 0");
  }
}

int64_t plain_slots(const DescribedModel& described, const SkewOptions& options, int64_t ep) {
  if (options.num_redundant) {
    return described.num_experts + *options.num_redundant;
  }
  return options.is_padded ? (described.num_experts + ep - 1) / ep * ep : described.num_experts;
}

int64_t eplb_slots(const DescribedModel& described, const SkewOptions& options, int64_t ep) {
  const int64_t wanted = described.num_experts + options.num_redundant.value_or(kDefaultRedundant);
  return options.num_redundant ? wanted : (wanted + ep - 1) / ep * ep;
}

MoeDeployment deployment_of(const DescribedModel& described, const SkewOptions& options, int64_t ep, int64_t tokens) {
  return {.hardware = options.hardware,
          .backend = options.backend,
          .link = options.link,
          .num_ranks = ep,
          .tokens_per_rank = static_cast<double>(tokens),
          .hidden_size = described.hidden_size,
          .router = router_of(described),
          .expert_time = expert_time_model(options.hardware,
                                           options.kernel,
                                           {.weights = expert_weights(described)},
                                           static_cast<double>(ep * tokens))
                             .time};
}

std::vector<std::vector<double>> popularity_of(const DescribedModel& described,
                                               const SkewOptions& options,
                                               int64_t num_tokens) {
  return model_popularity(options.skew,
                          described.num_experts,
                          described.experts_per_token,
                          num_tokens,
                          described.num_moe_layers,
                          options.layer_correlation,
                          options.seed);
}

Placement balanced(const DescribedModel& described,
                   const SkewOptions& options,
                   int64_t ep,
                   const std::vector<double>& popularity,
                   bool is_global) {
  const int64_t slots = eplb_slots(described, options, ep);
  if (is_global) {
    return eplb_placement(popularity, {.num_slots = slots, .num_ranks = ep});
  }
  const auto domain = static_cast<int64_t>(options.hardware.nvlink_domain_gpus.value);
  return eplb_placement(popularity, eplb_shape(slots, described.num_groups, ep, domain));
}

// Experts that ranks hold after and did not hold before; the order of a rank's slots does not matter.
int64_t num_fetched(const Placement& before, const Placement& after) {
  const auto of_rank = [](const Placement& placement, int64_t rank) {
    const auto begin = placement.expert_of_slot.begin() + rank * placement.slots_per_rank();
    std::vector<int64_t> experts(begin, begin + placement.slots_per_rank());
    std::ranges::sort(experts);
    return experts;
  };
  int64_t fetched = 0;
  for (int64_t rank = 0; rank < after.num_ranks; ++rank) {
    std::vector<int64_t> added;
    std::ranges::set_difference(of_rank(after, rank), of_rank(before, rank), std::back_inserter(added));
    fetched += std::ssize(added);
  }
  return fetched;
}

constexpr int64_t kCountStream = 2;  // the counts of moe_layer.cpp

void add_to(MoeLayerTime& sum, const MoeLayerTime& time) {
  sum.dispatch_us += time.dispatch_us;
  sum.compute_us += time.compute_us;
  sum.combine_us += time.combine_us;
  sum.wait_us += time.wait_us;
}

MoeLayerTime mean_of(const std::vector<MoeLayerTime>& steps) {
  MoeLayerTime mean;
  for (const MoeLayerTime& step : steps) {
    add_to(mean, step);
  }
  for (double MoeLayerTime::*part :
       {&MoeLayerTime::dispatch_us, &MoeLayerTime::compute_us, &MoeLayerTime::combine_us, &MoeLayerTime::wait_us}) {
    mean.*part /= static_cast<double>(steps.size());
  }
  return mean;
}

struct Imbalance {
  std::vector<double> rank;    // max/mean of each sampled layer
  std::vector<double> expert;  // the same over slots
};

Imbalance sample_imbalance(
    const std::vector<MoeLayer>& layers, int64_t num_tokens, int64_t k, int64_t num_steps, uint64_t seed) {
  constexpr int64_t kMostSteps = 20;
  Imbalance imbalance;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const Placement& placement = layers[layer].placement;
    for (int64_t step = 0; step < std::min(num_steps, kMostSteps); ++step) {
      CounterRandom random(seed, kCountStream, static_cast<int64_t>(layer), step);
      const auto counts = sample_expert_counts(layers[layer].popularity, num_tokens, k, random);
      const auto slots = slot_counts(counts, placement, step);
      std::vector<double> ranks(static_cast<size_t>(placement.num_ranks), 0.0);
      for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
        ranks[static_cast<size_t>(placement.rank_of_slot(slot))] +=
            static_cast<double>(slots[static_cast<size_t>(slot)]);
      }
      imbalance.rank.push_back(max_over_mean(ranks));
      imbalance.expert.push_back(max_over_mean(std::vector<double>(slots.begin(), slots.end())));
    }
  }
  return imbalance;
}

// What a row of the table sums up.
struct SkewRow {
  std::vector<MoeLayerTime> steps;
  Imbalance imbalance;
};

struct HostedExperts {
  int64_t num_hosted = 0;  // on a rank
  int64_t num_active = 0;  // of them compute in a step
};

// Which hosted experts compute is chosen anew in each step, by the counts of that step.
SkewRow sample_dynamic(const MoeDeployment& deployment,
                       const std::vector<std::vector<double>>& popularity,
                       const std::vector<std::vector<double>>& seen,
                       const HostedExperts& hosted,
                       const SkewOptions& options) {
  const auto num_tokens = std::llround(deployment.tokens_per_rank * static_cast<double>(deployment.num_ranks));
  SkewRow row{.steps = std::vector<MoeLayerTime>(static_cast<size_t>(options.num_steps)), .imbalance = {}};
  for (size_t layer = 0; layer < popularity.size(); ++layer) {
    const auto layer_idx = static_cast<int64_t>(layer);
    for (int64_t step = 0; step < options.num_steps; ++step) {
      CounterRandom random(options.seed, kCountStream, layer_idx, step);
      const auto counts =
          sample_expert_counts(popularity[layer], num_tokens, deployment.router.experts_per_token, random);
      const MoeLayer active{.popularity = popularity[layer],
                            .placement = dynamic_redundancy(seen[layer],
                                                            std::vector<double>(counts.begin(), counts.end()),
                                                            deployment.num_ranks,
                                                            hosted.num_hosted,
                                                            hosted.num_active)};
      const auto ranks = sample_moe_ranks(deployment, active, layer_idx, step, options.seed);
      std::vector<double> loads;
      for (const MoeRankTime& rank : ranks) {
        loads.push_back(static_cast<double>(rank.load.num_tokens));
      }
      const auto slots = slot_counts(counts, active.placement, step);
      row.imbalance.rank.push_back(max_over_mean(loads));
      row.imbalance.expert.push_back(max_over_mean(std::vector<double>(slots.begin(), slots.end())));
      add_to(row.steps[static_cast<size_t>(step)], layer_time(ranks));
    }
  }
  return row;
}

std::vector<double> totals_ms(const std::vector<MoeLayerTime>& steps) {
  std::vector<double> totals;
  for (const MoeLayerTime& step : steps) {
    totals.push_back(step.total_us() / 1e3);
  }
  return totals;
}

Table empty_skew_table(const SkewOptions& options) {
  return {.name = "skew",
          .title = fmt::format("Unequal experts: {}, {}, {}, all MoE layers, {} steps",
                               skew_text(options.skew),
                               options.hardware.title,
                               backend_name(options.backend),
                               options.num_steps),
          .columns = {{"ep", "EP"},
                      {"tokens_per_rank", "tokens", "per rank"},
                      {"placement", "placement"},
                      {"slots_per_rank", "slots", "per rank"},
                      {"num_redundant", "redundant", "slots"},
                      {"rank_max_over_mean_p50", "rank max/mean", "p50", 1, 2},
                      {"rank_max_over_mean_p99", "rank max/mean", "p99", 1, 2},
                      {"slot_max_over_mean_p50", "slot max/mean", "p50", 1, 2},
                      {"step_ms_p50", "MoE step", "ms p50", 1, 3},
                      {"step_ms_p90", "MoE step", "ms p90", 1, 3},
                      {"step_ms_p99", "MoE step", "ms p99", 1, 3},
                      {"dispatch_ms", "dispatch", "ms", 1, 3},
                      {"compute_ms", "experts", "ms", 1, 3},
                      {"combine_ms", "combine", "ms", 1, 3},
                      {"wait_ms", "waiting", "ms", 1, 3},
                      {"cost_ms", "more than balanced", "ms p50", 1, 3},
                      {"redundant_gb_per_rank", "redundant weights", "GB/rank", 1, 2}}};
}

}  // namespace

Router router_of(const DescribedModel& described) {
  return {.num_experts = described.num_experts,
          .experts_per_token = described.experts_per_token,
          .num_groups = described.num_groups,
          .kept_groups = described.kept_groups};
}

double expert_weights(const DescribedModel& described) {
  double weights = 0;
  int64_t layer = -1;
  for (const model::CatalogTensor& tensor : described.bf16_tensors) {
    if (tensor.expert == 0 && (layer == -1 || tensor.layer == layer)) {
      layer = tensor.layer;
      weights += static_cast<double>(model::num_elements(tensor.shape));
    }
  }
  return weights;
}

std::vector<Placement> eplb_layers(const DescribedModel& described, const SkewOptions& options) {
  check_options(described, options);
  const int64_t ep = options.eps.front();
  std::vector<Placement> placements;
  for (const auto& layer : popularity_of(described, options, ep * options.batches.front())) {
    placements.push_back(balanced(described, options, ep, layer, false));
  }
  return placements;
}

std::vector<Table> skew_tables(const DescribedModel& described, const SkewOptions& options) {
  check_options(described, options);
  const double expert_gb = expert_weights(described) / kGb;  // FP8
  Table table = empty_skew_table(options);
  for (const int64_t ep : options.eps) {
    for (const int64_t tokens : options.batches) {
      const MoeDeployment deployment = deployment_of(described, options, ep, tokens);
      const auto popularity = popularity_of(described, options, ep * tokens);
      const std::vector<double> even(static_cast<size_t>(described.num_experts),
                                     1 / static_cast<double>(described.num_experts));
      const Placement plain = contiguous_placement(
          described.num_experts, ep, plain_slots(described, options, ep), options.num_redundant.has_value());
      std::vector<std::string> names{"balanced", "in order", "EPLB", "EPLB global"};
      if (options.with_local_search) {
        names.emplace_back("local search");
      }
      double balanced_ms = 0;
      const auto seen_of = [&](size_t layer) {
        return seen_popularity(popularity[layer], options.stale_correlation, static_cast<int64_t>(layer), options.seed);
      };
      const auto add = [&](const std::string& name, int64_t slots_per_rank, int64_t redundant, const SkewRow& row) {
        const std::vector<double> totals = totals_ms(row.steps);
        const double median_ms = quantile(totals, 0.5);
        balanced_ms = name == "balanced" ? median_ms : balanced_ms;
        const MoeLayerTime mean = mean_of(row.steps);
        table.add({ep,
                   tokens,
                   name,
                   slots_per_rank,
                   redundant,
                   quantile(row.imbalance.rank, 0.5),
                   quantile(row.imbalance.rank, 0.99),
                   quantile(row.imbalance.expert, 0.5),
                   median_ms,
                   quantile(totals, 0.9),
                   quantile(totals, 0.99),
                   mean.dispatch_us / 1e3,
                   mean.compute_us / 1e3,
                   mean.combine_us / 1e3,
                   mean.wait_us / 1e3,
                   median_ms - balanced_ms,
                   static_cast<double>(redundant) / static_cast<double>(ep) * expert_gb *
                       static_cast<double>(described.num_moe_layers)});
      };
      for (const std::string& name : names) {
        std::vector<MoeLayer> layers;
        for (size_t layer = 0; layer < popularity.size(); ++layer) {
          const auto placed = [&]() -> Placement {
            if (name == "balanced" || name == "in order") {
              return plain;
            }
            const std::vector<double> seen = seen_of(layer);
            const Placement placement = balanced(described, options, ep, seen, name != "EPLB");
            return name == "local search" ? improved_placement(seen, placement) : placement;
          };
          layers.push_back({.popularity = name == "balanced" ? even : popularity[layer], .placement = placed()});
        }
        const Placement& placement = layers.front().placement;
        const bool has_copies = (name != "balanced" && name != "in order") || options.num_redundant;
        add(name,
            placement.slots_per_rank(),
            has_copies ? placement.num_slots() - described.num_experts : 0,
            {.steps = sample_moe_step(deployment, layers, options.num_steps, options.seed),
             .imbalance =
                 sample_imbalance(layers, ep * tokens, described.experts_per_token, options.num_steps, options.seed)});
      }
      if (options.num_hosted > 0) {
        std::vector<std::vector<double>> seen;
        for (size_t layer = 0; layer < popularity.size(); ++layer) {
          seen.push_back(seen_of(layer));
        }
        const int64_t active = eplb_slots(described, options, ep) / ep;
        if (options.num_hosted < active) {
          model::throw_input_error(
              "--dynamic {}: expected at least the {} slots of a rank that compute", options.num_hosted, active);
        }
        add(fmt::format("dynamic, {} hosted", options.num_hosted),
            active,
            options.num_hosted * ep - described.num_experts,
            sample_dynamic(
                deployment, popularity, seen, {.num_hosted = options.num_hosted, .num_active = active}, options));
      }
    }
  }
  std::vector<Table> tables{table};

  if (!options.rebalance_steps.empty()) {
    const int64_t ep = options.eps.front();
    const int64_t tokens = options.batches.front();
    const MoeDeployment deployment = deployment_of(described, options, ep, tokens);
    const auto popularity = popularity_of(described, options, ep * tokens);
    Table rebalance{
        .name = "rebalance",
        .title = fmt::format("EPLB with statistics that are half an interval old on average, EP{}, {} tokens a rank; a "
                             "load's correlation with itself falls to 1/e in {} steps",
                             ep,
                             tokens,
                             options.drift_steps),
        .columns = {{"interval_steps", "interval", "steps"},
                    {"correlation", "correlation", "", 1, 3},
                    {"rank_max_over_mean_p50", "rank max/mean", "p50", 1, 2},
                    {"step_ms_p50", "MoE step", "ms p50", 1, 3},
                    {"moved_slots", "fetched", "experts/layer", 1, 1},
                    {"move_ms_per_step", "moving", "ms/step", 1, 3},
                    {"total_ms", "both", "ms/step", 1, 3}}};
    for (const int64_t interval : options.rebalance_steps) {
      if (interval < 1) {
        model::throw_input_error("--rebalance {}: expected 1 step or more", interval);
      }
      // Statistics are from one interval before the placement takes effect at worst, half of that on average.
      const double correlation = std::exp(-0.5 * static_cast<double>(interval) / options.drift_steps);
      const double between = std::exp(-static_cast<double>(interval) / options.drift_steps);
      std::vector<MoeLayer> layers;
      double moved = 0;
      for (size_t layer = 0; layer < popularity.size(); ++layer) {
        const auto layer_idx = static_cast<int64_t>(layer);
        const auto seen = seen_popularity(popularity[layer], correlation, layer_idx, options.seed);
        const auto before = seen_popularity(seen, between, layer_idx, options.seed + 1);
        const Placement placement = balanced(described, options, ep, seen, false);
        const Placement previous = balanced(described, options, ep, before, false);
        moved += static_cast<double>(num_fetched(previous, placement));
        layers.push_back({.popularity = popularity[layer], .placement = placement});
      }
      const auto steps = sample_moe_step(deployment, layers, options.num_steps, options.seed);
      const Imbalance imbalance =
          sample_imbalance(layers, ep * tokens, described.experts_per_token, options.num_steps, options.seed);
      const double step_ms = quantile(totals_ms(steps), 0.5);
      // Every rank fetches its new slots over its NIC.
      const double move_ms = moved / static_cast<double>(ep) * expert_gb / options.hardware.nic_gb_per_s.value * 1e3 /
                             static_cast<double>(interval);
      rebalance.add({interval,
                     correlation,
                     quantile(imbalance.rank, 0.5),
                     step_ms,
                     moved / static_cast<double>(popularity.size()),
                     move_ms,
                     step_ms + move_ms});
    }
    tables.push_back(rebalance);
  }

  if (!options.gammas.empty()) {
    const int64_t ep = options.eps.front();
    const auto popularity = popularity_of(described, options, ep * options.batches.front()).front();
    Table bias{.name = "bias",
               .title = fmt::format(
                   "Steering the router's bias by gamma after each step of 512 tokens, first MoE layer, EP{}", ep),
               .columns = {{"gamma", "gamma"},
                           {"step", "step"},
                           {"expert_max_over_mean", "expert max/mean", "", 1, 2},
                           {"rank_max_over_mean", "rank max/mean", "", 1, 2}}};
    for (const double gamma : options.gammas) {
      const auto steps = control_bias(router_of(described), popularity, ep, {.gamma = gamma}, options.seed);
      for (size_t i = 0; i < steps.size(); i = i == 0 ? 1 : 2 * i) {
        bias.add({gamma, steps[i].step, steps[i].expert_max_over_mean, steps[i].rank_max_over_mean});
      }
      bias.add({gamma, steps.back().step, steps.back().expert_max_over_mean, steps.back().rank_max_over_mean});
    }
    tables.push_back(bias);
  }
  return tables;
}

}  // namespace simulator
