#include "gpu/comm/thread_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>

namespace gpu::comm {

ThreadJob::ThreadJob(int num_ranks, const Timing& timing_of_job)
    : timing(timing_of_job), left(static_cast<size_t>(num_ranks)) {}

void ThreadJob::fail(int world_rank, const std::string& why) {
  const std::lock_guard lock(mutex);
  if (!failed_rank) {
    failed_rank = world_rank;
    failure = why;
    changed.notify_all();
  }
}

void ThreadJob::leave(int world_rank) {
  const std::lock_guard lock(mutex);
  left[static_cast<size_t>(world_rank)] = true;
  changed.notify_all();
}

std::shared_ptr<ThreadGroup> make_thread_world(int num_ranks, const Timing& timing) {
  auto world = std::make_shared<ThreadGroup>();
  world->job = std::make_shared<ThreadJob>(num_ranks, timing);
  world->name = "world";
  world->world_ranks.resize(static_cast<size_t>(num_ranks));
  std::iota(world->world_ranks.begin(), world->world_ranks.end(), 0);
  return world;
}

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadGroup> group, int rank)
    : Transport(group->name, rank, group->world_ranks), group_(std::move(group)), job_(*group_->job) {}

void ThreadTransport::meet(const Meeting& meeting, const Parts& brought, const Read& read) {
  const auto ranks = meeting.ranks(size());
  Lock lock(job_.mutex);
  const auto room = enter(lock, meeting, brought);
  const Parts found = found_in(*room, ranks);
  const auto visitors = room->visitors;
  lock.unlock();
  std::exception_ptr error;
  try {
    for (const int other : ranks) {
      require_same_call(meeting, other, visitors[static_cast<size_t>(other)].meeting->text);
    }
    read(found);
  } catch (...) {
    error = std::current_exception();
  }
  // All are here and do nothing but read, so this wait ends. What this rank brought has to last until then.
  lock.lock();
  ++room->num_done;
  job_.changed.notify_all();
  job_.changed.wait(lock, [&] { return room->num_done == ranks.size(); });
  if (error) {
    std::rethrow_exception(error);
  }
}

std::shared_ptr<ThreadRoom> ThreadTransport::enter(Lock& lock, const Meeting& meeting, const Parts& brought) {
  throw_if_failed(meeting);
  const auto ranks = meeting.ranks(size());
  const std::pair key(meeting.pair, meeting.number);
  auto& place = group_->rooms[key];
  if (!place) {
    place = std::make_shared<ThreadRoom>();
    place->visitors.resize(static_cast<size_t>(size()));
  }
  const auto room = place;
  room->visitors[static_cast<size_t>(rank())] = {&meeting, &brought};
  if (++room->num_here == ranks.size()) {
    group_->rooms.erase(key);
    job_.changed.notify_all();
    return room;
  }
  const auto missing = [&](bool only_who_left) {
    std::vector<int> who;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(who), [&](int other) {
      const bool is_here = room->visitors[static_cast<size_t>(other)].meeting != nullptr;
      return !is_here && (!only_who_left || job_.left[static_cast<size_t>(world_ranks()[static_cast<size_t>(other)])]);
    });
    return who;
  };
  const auto is_settled = [&] { return room->num_here == ranks.size() || job_.failed_rank || !missing(true).empty(); };
  const std::chrono::duration<double> timeout(job_.timing.timeout_s);
  job_.changed.wait_for(lock, timeout, is_settled);
  if (room->num_here == ranks.size()) {
    return room;
  }
  throw_if_failed(meeting);
  const auto who_left = missing(true);
  const std::string why = who_left.empty()
                              ? fmt::format("{} did not come within {} s", names(missing(false)), timeout.count())
                              : fmt::format("{} left before", names(who_left));
  lock.unlock();
  fail(meeting, why);
}

Parts ThreadTransport::found_in(const ThreadRoom& room, const std::vector<int>& ranks) const {
  Parts found(static_cast<size_t>(size()));
  for (const int other : ranks) {
    const auto from = static_cast<size_t>(other);
    found[from] = (*room.visitors[from].brought)[static_cast<size_t>(rank())];
  }
  return found;
}

void ThreadTransport::throw_if_failed(const Meeting& meeting) const {
  if (job_.failed_rank) {
    throw_error(meeting, fmt::format("rank {} of world failed: {}", *job_.failed_rank, job_.failure));
  }
}

std::unique_ptr<Transport> ThreadTransport::split(const std::vector<int>& members,
                                                  int64_t number,
                                                  int colour,
                                                  std::string group) {
  const std::lock_guard lock(job_.mutex);
  const std::pair key(number, colour);
  auto& subgroup = group_->subgroups[key];
  if (!subgroup.group) {
    subgroup.group = std::make_shared<ThreadGroup>();
    subgroup.group->job = group_->job;
    subgroup.group->name = std::move(group);
    for (const int member : members) {
      subgroup.group->world_ranks.push_back(world_ranks()[static_cast<size_t>(member)]);
    }
  }
  const auto my_place = std::find(members.begin(), members.end(), rank());
  auto transport = std::make_unique<ThreadTransport>(subgroup.group, static_cast<int>(my_place - members.begin()));
  if (++subgroup.num_taken == members.size()) {
    group_->subgroups.erase(key);
  }
  return transport;
}

void ThreadTransport::abort(const std::string& reason) {
  job_.fail(world_ranks()[static_cast<size_t>(rank())], reason);
}

}  // namespace gpu::comm
