// The bound by local search and the V3 report's dynamic redundancy, both declared in eplb.hpp.
#include <algorithm>
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

// Which experts compute where in one step.
struct Activation {
  const std::vector<std::vector<size_t>>& hosts_of;
  const std::vector<double>& load;
  size_t num_active;                            // most experts of a rank
  std::vector<std::vector<size_t>> experts_of;  // [num_ranks]
  std::vector<double> filled;                   // [num_ranks], first copies only

  // Gives `expert` a place, moving others to their other hosts if need be (augmenting path).
  bool place(size_t expert, std::vector<bool>& visited) {
    const size_t none = experts_of.size();
    size_t lightest = none;
    for (const size_t rank : hosts_of[expert]) {
      if (experts_of[rank].size() < num_active && (lightest == none || filled[rank] < filled[lightest])) {
        lightest = rank;
      }
    }
    if (lightest != none) {
      experts_of[lightest].push_back(expert);
      filled[lightest] += load[expert];
      return true;
    }
    for (const size_t rank : hosts_of[expert]) {
      if (visited[rank]) {
        continue;
      }
      visited[rank] = true;
      for (size_t& resident : experts_of[rank]) {
        if (place(resident, visited)) {
          filled[rank] += load[expert] - load[resident];
          resident = expert;
          return true;
        }
      }
    }
    return false;
  }
};

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
  const Placement hosted = eplb_placement(hosted_load, {.num_slots = num_ranks * num_hosted, .num_ranks = num_ranks});
  const std::vector<std::vector<size_t>> hosts_of = hosts(hosted);
  const auto ranks = static_cast<size_t>(num_ranks);
  Activation active{hosts_of, step_load, static_cast<size_t>(num_active), {}, std::vector<double>(ranks, 0.0)};
  active.experts_of.resize(ranks);
  std::vector<size_t> order(step_load.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t left, size_t right) { return step_load[left] > step_load[right]; });
  for (const size_t expert : order) {
    std::vector<bool> visited(ranks, false);
    if (!active.place(expert, visited)) {
      model::throw_input_error(
          "{} active experts a rank: expert {} has no room on the ranks that host it; more active ones would work",
          num_active,
          expert);
    }
  }
  std::vector<double> copies(step_load.size(), 1.0);
  const auto filled = [&](size_t rank) {
    double sum = 0;
    for (const size_t expert : active.experts_of[rank]) {
      sum += step_load[expert] / copies[expert];
    }
    return sum;
  };
  // More copies where the load per copy is largest, on the lightest host with room, until nobody has room or a host left.
  std::vector<bool> is_done(step_load.size(), false);
  for (;;) {
    size_t fullest = step_load.size();
    for (size_t expert = 0; expert < step_load.size(); ++expert) {
      if (!is_done[expert] &&
          (fullest == step_load.size() || step_load[expert] / copies[expert] > step_load[fullest] / copies[fullest])) {
        fullest = expert;
      }
    }
    if (fullest == step_load.size()) {
      break;
    }
    size_t lightest = ranks;
    for (const size_t rank : hosts_of[fullest]) {
      const std::vector<size_t>& residents = active.experts_of[rank];
      if (residents.size() < active.num_active && std::ranges::find(residents, fullest) == residents.end() &&
          (lightest == ranks || filled(rank) < filled(lightest))) {
        lightest = rank;
      }
    }
    if (lightest == ranks) {
      is_done[fullest] = true;
      continue;
    }
    active.experts_of[lightest].push_back(fullest);
    copies[fullest] += 1;
  }
  Placement placement{.num_experts = num_experts, .num_ranks = num_ranks, .expert_of_slot = {}};
  for (const std::vector<size_t>& experts : active.experts_of) {
    for (size_t slot = 0; slot < active.num_active; ++slot) {
      placement.expert_of_slot.push_back(slot < experts.size() ? static_cast<int64_t>(experts[slot])
                                                               : Placement::kEmptySlot);
    }
  }
  return placement;
}

}  // namespace simulator
