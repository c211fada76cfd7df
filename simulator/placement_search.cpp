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
  const std::vector<double>& load;              // of one copy of each expert
  size_t num_active;                            // most experts of a rank
  std::vector<std::vector<size_t>> experts_of;  // [num_ranks]
  std::vector<double> filled;                   // [num_ranks]

  [[nodiscard]] bool holds(size_t rank, size_t expert) const {
    return std::ranges::find(experts_of[rank], expert) != experts_of[rank].end();
  }

  // Gives a copy of `expert` a place on the lightest host, moving others to their other hosts if need be (augmenting path).
  bool place(size_t expert, std::vector<bool>& visited) {
    const size_t none = experts_of.size();
    size_t lightest = none;
    for (const size_t rank : hosts_of[expert]) {
      if (experts_of[rank].size() < num_active && !holds(rank, expert) &&
          (lightest == none || filled[rank] < filled[lightest])) {
        lightest = rank;
      }
    }
    if (lightest != none) {
      experts_of[lightest].push_back(expert);
      filled[lightest] += load[expert];
      return true;
    }
    for (const size_t rank : hosts_of[expert]) {
      if (visited[rank] || holds(rank, expert)) {
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

  // Takes a copy of an expert that has others away from a host of `expert`. False: there is none.
  bool make_room(size_t expert, std::vector<int64_t>& copies) {
    for (const size_t rank : hosts_of[expert]) {
      for (const size_t resident : experts_of[rank]) {
        if (copies[resident] > 1) {
          --copies[resident];
          std::erase(experts_of[rank], resident);
          filled[rank] -= load[resident];
          return true;
        }
      }
    }
    return false;
  }
};

// How many copies of each expert compute: one more, time and again, for the largest load per copy that has a host left.
std::vector<int64_t> active_copies(const std::vector<double>& load,
                                   const std::vector<std::vector<size_t>>& hosts_of,
                                   int64_t num_slots) {
  std::vector<int64_t> copies(load.size(), 1);
  for (auto left = num_slots - std::ssize(load); left > 0; --left) {
    size_t best = load.size();
    for (size_t expert = 0; expert < load.size(); ++expert) {
      const auto per_copy = [&](size_t id) { return load[id] / static_cast<double>(copies[id]); };
      if (copies[expert] < std::ssize(hosts_of[expert]) && (best == load.size() || per_copy(expert) > per_copy(best))) {
        best = expert;
      }
    }
    if (best == load.size()) {
      break;
    }
    ++copies[best];
  }
  return copies;
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
  const Placement hosted = eplb_placement(hosted_load, {.num_slots = num_ranks * num_hosted, .num_ranks = num_ranks});
  const std::vector<std::vector<size_t>> hosts_of = hosts(hosted);
  const auto ranks = static_cast<size_t>(num_ranks);
  std::vector<int64_t> copies = active_copies(step_load, hosts_of, num_ranks * num_active);
  std::vector<double> load_of_copy = step_load;
  for (size_t expert = 0; expert < load_of_copy.size(); ++expert) {
    load_of_copy[expert] /= static_cast<double>(copies[expert]);
  }
  Activation active{hosts_of,
                    load_of_copy,
                    static_cast<size_t>(num_active),
                    std::vector<std::vector<size_t>>(ranks),
                    std::vector<double>(ranks, 0.0)};
  std::vector<size_t> order(step_load.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t left, size_t right) { return load_of_copy[left] > load_of_copy[right]; });
  for (const size_t expert : order) {
    for (int64_t copy = 0; copy < copies[expert]; ++copy) {
      std::vector<bool> visited(ranks, false);
      if (active.place(expert, visited)) {
        continue;
      }
      if (copy > 0) {
        copies[expert] = copy;  // the other copies take its share
        break;
      }
      visited.assign(ranks, false);
      if (!active.make_room(expert, copies) || !active.place(expert, visited)) {
        model::throw_input_error(
            "{} active experts a rank: expert {} has no room on the ranks that host it; more active ones would work",
            num_active,
            expert);
      }
    }
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
