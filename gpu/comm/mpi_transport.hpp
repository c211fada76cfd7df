// Ranks that are processes: at a meeting each sends every other one a letter, and has one from each.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu/comm/mpi_job.hpp"
#include "gpu/comm/transport.hpp"

namespace gpu::comm {

class MpiTransport final : public Transport {
 public:
  // The job outlives it. `communicator` is of the ranks `world_ranks`, in that order, and for this group alone; it lasts until MPI ends,
  // because freeing it would be a collective that a failed job cannot do.
  MpiTransport(MpiJob& job, MPI_Comm communicator, std::string group, int rank, std::vector<int> world_ranks);

  void meet(const Meeting& meeting, const Parts& brought, const Read& read) override;
  std::unique_ptr<Transport> split(const std::vector<int>& members,
                                   int64_t number,
                                   int colour,
                                   std::string group) override;
  [[nodiscard]] bool shares_memory() const override { return false; }
  void abort(const std::string& reason) override { job_.fail(reason); }

 private:
  struct Post;

  void send_letter(Post& post, const Meeting& meeting);
  // Takes the letter in when it comes; true when both letters have arrived.
  bool is_done(Post& post, const Meeting& meeting);
  // Returns when all letters have arrived.
  void await_letters(std::vector<Post>& posts, const Meeting& meeting);
  void throw_if_failed(const Meeting& meeting);
  // Of letters from `sender`, so that they are told from those of other meetings between the same ranks.
  [[nodiscard]] int tag_of(const Meeting& meeting, int sender) const;

  MpiJob& job_;
  MPI_Comm communicator_;
};

}  // namespace gpu::comm
