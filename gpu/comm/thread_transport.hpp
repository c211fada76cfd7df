// Ranks that are threads of one process: they meet in a table under one lock, and read each other's memory.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/comm/transport.hpp"

namespace gpu::comm {

// What all ranks of a job share, in whichever groups they are. `mutex` guards it, and the groups.
struct ThreadJob {
  ThreadJob(int num_ranks, const Timing& timing_of_job);
  // The first failure counts.
  void fail(int world_rank, const std::string& why);
  // The rank's work is done: who waits for it need not wait longer.
  void leave(int world_rank);

  const Timing timing;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<int> failed_rank;  // of the world
  std::string failure;
  std::vector<bool> left;  // [num_ranks]
};

// A meeting that is going on.
struct ThreadRoom {
  struct Visitor {
    const Meeting* meeting = nullptr;
    const Parts* brought = nullptr;
  };
  std::vector<Visitor> visitors;  // by rank of the group
  size_t num_here = 0;
  size_t num_done = 0;  // have read
};

struct ThreadGroup {
  struct Subgroup {
    std::shared_ptr<ThreadGroup> group;
    size_t num_taken = 0;  // by how many of its ranks
  };

  std::shared_ptr<ThreadJob> job;
  std::string name;
  std::vector<int> world_ranks;  // by rank of the group
  std::map<std::pair<std::optional<Pair>, int64_t>, std::shared_ptr<ThreadRoom>>
      rooms;                                              // by pair and number of the meeting
  std::map<std::pair<int64_t, int>, Subgroup> subgroups;  // by number of the meeting and colour
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadGroup> group, int rank);

  void meet(const Meeting& meeting, const Parts& brought, const Read& read) override;
  std::unique_ptr<Transport> split(const std::vector<int>& members,
                                   int64_t number,
                                   int colour,
                                   std::string group) override;
  [[nodiscard]] bool shares_memory() const override { return true; }
  void abort(const std::string& reason) override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Comes to a meeting; returns when all are there.
  std::shared_ptr<ThreadRoom> enter(Lock& lock, const Meeting& meeting, const Parts& brought);
  // What the others brought for this rank.
  [[nodiscard]] Parts found_in(const ThreadRoom& room, const std::vector<int>& ranks) const;
  void throw_if_failed(const Meeting& meeting) const;

  std::shared_ptr<ThreadGroup> group_;
  ThreadJob& job_;
};

// The group of all ranks of a job.
std::shared_ptr<ThreadGroup> make_thread_world(int num_ranks, const Timing& timing);

}  // namespace gpu::comm
