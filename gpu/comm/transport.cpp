#include "gpu/comm/transport.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

std::vector<int> Meeting::ranks(int group_size) const {
  if (pair) {
    return {pair->from, pair->to};
  }
  std::vector<int> all(static_cast<size_t>(group_size));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

Transport::Transport(std::string group, int rank, std::vector<int> world_ranks)
    : group_(std::move(group)), rank_(rank), world_ranks_(std::move(world_ranks)) {}

std::string Transport::line(const Meeting& meeting, const std::string& why) const {
  return fmt::format("rank {} of group {}: {}: {}", rank_, group_, meeting.text, why);
}

void Transport::throw_error(const Meeting& meeting, const std::string& why) const {
  throw CommError(line(meeting, why));
}

void Transport::fail(const Meeting& meeting, const std::string& why) {
  abort(line(meeting, why));
  throw_error(meeting, why);
}

std::string Transport::names(const std::vector<int>& ranks) const {
  std::vector<int> of_world;
  for (const int rank : ranks) {
    of_world.push_back(world_ranks_[static_cast<size_t>(rank)]);
  }
  const std::string names = fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
  return of_world == ranks ? names : fmt::format("{} (of world {})", names, fmt::join(of_world, ", "));
}

void Transport::require_same_call(const Meeting& meeting, int other, const std::string& text_of_other) {
  if (text_of_other != meeting.text) {
    fail(meeting, fmt::format("{} came for {}", names({other}), text_of_other));
  }
}

}  // namespace gpu::comm
