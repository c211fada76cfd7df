// The bound by local search and the V3 report's dynamic redundancy, both declared in eplb.hpp.
#include <algorithm>
#include <functional>
#include <numeric>

#include "model/check.hpp"
#include "simulator/eplb.hpp"

namespace simulator {
namespace {

// Ranks that host each expert, without repetition.
std::vector<std::vector<size_t>> hosts(const Placement& placement) {
  std::vector<std::vector<size_t>> ranks(static_cast<size_t>(placement.num_experts));
  for (int64_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int64_t expert = placement.expert_of_slot[static_cast<size_t>(slot)];
    if (expert != Placement::kEmptySlot) {
      auto& of_expert = ranks[static_cast<size_t>(expert)];
      const auto rank = static_cast<size_t>(placement.rank_of_slot(slot));
      if (std::ranges::find(of_expert, rank) == of_expert.end()) {
        of_expert.push_back(rank);
      }
    }
  }
  return ranks;
}

double largest(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

// Which copies compute where in one step.
struct Activation {
  std::vector<std::vector<size_t>> hosts_of;    // [num_experts], ranks
  std::vector<double> load;                     // of one copy of each expert
  std::vector<std::vector<size_t>> experts_of;  // [num_ranks], equally many on each
  std::vector<double> filled;                   // [num_ranks]

  [[nodiscard]] bool holds(size_t rank, size_t expert) const {
    return std::ranges::find(experts_of[rank], expert) != experts_of[rank].end();
  }

  // Makes the fullest rank lighter by swapping one of its copies for one of another host. False: nothing helps.
  bool relieve() {
    const auto fullest = static_cast<size_t>(std::ranges::max_element(filled) - filled.begin());
    const auto is_host = [&](size_t rank, size_t expert) {
      return std::ranges::find(hosts_of[expert], rank) != hosts_of[expert].end();
    };
    double best = filled[fullest] * (1 - 1e-9);
    std::function<void()> apply;
    for (size_t& mine : experts_of[fullest]) {
      for (const size_t other : hosts_of[mine]) {
        if (other == fullest || holds(other, mine)) {
          continue;
        }
        const auto consider = [&](double load_back, const std::function<void()>& move) {
          const double moved = load[mine] - load_back;
          const double after = std::max(filled[fullest] - moved, filled[other] + moved);
          if (after < best) {
            best = after;
            apply = [this, fullest, other, moved, move] {
              move();
              filled[fullest] -= moved;
              filled[other] += moved;
            };
          }
        };
        for (size_t& theirs : experts_of[other]) {
          if (load[theirs] < load[mine] && is_host(fullest, theirs) && !holds(fullest, theirs)) {
            consider(load[theirs], [&mine, &theirs] { std::swap(mine, theirs); });
          }
        }
      }
    }
    if (apply) {
      apply();
    }
    return apply != nullptr;
  }
};

// Further hosts: each rank takes `num_more` experts that it does not hold, the most loaded experts first, each in turn.
void add_hosts(std::vector<std::vector<size_t>>& hosts_of,
               const std::vector<double>& load,
               size_t num_ranks,
               int64_t num_more) {
  std::vector<size_t> order(load.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t left, size_t right) { return load[left] > load[right]; });
  size_t next = 0;
  for (int64_t round = 0; round < num_more; ++round) {
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      for (size_t tried = 0; tried < order.size(); ++tried) {
        std::vector<size_t>& ranks = hosts_of[order[next++ % order.size()]];
        if (std::ranges::find(ranks, rank) == ranks.end()) {
          ranks.push_back(rank);
          break;
        }
      }
    }
  }
}

}  // namespace

Placement improved_placement(const std::vector<double>& load, const Placement& start) {
  Placement best = start;
  double best_max = largest(rank_loads(load, best));
  const auto improves = [&](Placement& trial) {
    const double trial_max = largest(rank_loads(load, trial));
    if (trial_max >= best_max * (1 - 1e-9)) {
      return false;
    }
    best = trial;
    best_max = trial_max;
    return true;
  };
  const auto step = [&] {
    const std::vector<double> loads = rank_loads(load, best);
    const int64_t fullest = std::ranges::max_element(loads) - loads.begin();
    const int64_t per_rank = best.slots_per_rank();
    std::vector<int64_t> copies(load.size(), 0);
    for (const int64_t expert : best.expert_of_slot) {
      if (expert != Placement::kEmptySlot) {
        ++copies[static_cast<size_t>(expert)];
      }
    }
    for (int64_t mine = fullest * per_rank; mine < (fullest + 1) * per_rank; ++mine) {
      for (int64_t other = 0; other < best.num_slots(); ++other) {
        if (best.rank_of_slot(other) == fullest) {
          continue;
        }
        const int64_t my_expert = best.expert_of_slot[static_cast<size_t>(mine)];
        const int64_t other_expert = best.expert_of_slot[static_cast<size_t>(other)];
        if (my_expert == Placement::kEmptySlot || my_expert == other_expert) {
          continue;
        }
        Placement swapped = best;
        std::swap(swapped.expert_of_slot[static_cast<size_t>(mine)],
                  swapped.expert_of_slot[static_cast<size_t>(other)]);
        if (improves(swapped)) {
          return true;
        }
        if (other_expert == Placement::kEmptySlot || copies[static_cast<size_t>(other_expert)] > 1) {
          Placement given = best;
          given.expert_of_slot[static_cast<size_t>(other)] = my_expert;
          if (improves(given)) {
            return true;
          }
        }
      }
    }
    return false;
  };
  while (step()) {
  }
  return best;
}

Placement dynamic_redundancy(const std::vector<double>& hosted_load,
                             const std::vector<double>& step_load,
                             int64_t num_ranks,
                             int64_t num_hosted,
                             int64_t num_active) {
  CHECK_EQ(hosted_load.size(), step_load.size());
  const auto num_experts = static_cast<int64_t>(step_load.size());
  if (num_active < 1 || num_active > num_hosted || num_ranks * num_active < num_experts) {
    model::throw_input_error("{} of {} hosted experts active on {} ranks: expected at least {} active for {} experts",
                             num_active,
                             num_hosted,
                             num_ranks,
                             (num_experts + num_ranks - 1) / num_ranks,
                             num_experts);
  }
  // What computes without a reason to change is EPLB's placement; the other hosts are where copies may go.
  const Placement usual = eplb_placement(hosted_load, {.num_slots = num_ranks * num_active, .num_ranks = num_ranks});
  const auto ranks = static_cast<size_t>(num_ranks);
  Activation active{.hosts_of = hosts(usual),
                    .load = step_load,
                    .experts_of = std::vector<std::vector<size_t>>(ranks),
                    .filled = rank_loads(step_load, usual)};
  std::vector<double> copies(step_load.size(), 0);
  for (int64_t slot = 0; slot < usual.num_slots(); ++slot) {
    const auto expert = static_cast<size_t>(usual.expert_of_slot[static_cast<size_t>(slot)]);
    active.experts_of[static_cast<size_t>(usual.rank_of_slot(slot))].push_back(expert);
    copies[expert] += 1;
  }
  for (size_t expert = 0; expert < copies.size(); ++expert) {
    active.load[expert] /= copies[expert];
  }
  add_hosts(active.hosts_of, hosted_load, ranks, num_hosted - num_active);
  constexpr int kMostMoves = 1000;
  for (int move = 0; move < kMostMoves && active.relieve(); ++move) {
  }
  Placement placement{.num_experts = num_experts, .num_ranks = num_ranks, .expert_of_slot = {}};
  for (const std::vector<size_t>& experts : active.experts_of) {
    placement.expert_of_slot.insert(placement.expert_of_slot.end(), experts.begin(), experts.end());
  }
  return placement;
}

}  // namespace simulator
