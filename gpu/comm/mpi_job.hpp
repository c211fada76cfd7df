// An MPI job as this process sees it: who it is, and what other ranks say outside of any collective: that they failed, or left.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpu/comm/communicator.hpp"

namespace gpu::comm {

// Throws CommError with MPI's own words.
void check_mpi(int status, const char* call);

class MpiJob {
 public:
  struct Failure {
    int rank = 0;  // the first that this process heard of
    std::string why;
  };

  // Starts MPI.
  explicit MpiJob(const Timing& timing);
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(has_left_.size()); }
  [[nodiscard]] const Timing& timing() const { return timing_; }
  [[nodiscard]] int largest_tag() const { return largest_tag_; }

  // Tells the other ranks. The first failure counts.
  void fail(const std::string& why);
  // Takes in what other ranks told until now.
  std::optional<Failure> failure();
  // As far as that is known.
  bool has_left(int rank);

  // Memory that MPI may use after a collective was given up; it lasts as long as the process.
  void keep(std::shared_ptr<void> memory);

  // This rank's work is done. Returns when that is so for all ranks, or one has failed.
  void leave();
  // Ends MPI, after leave().
  void finish();
  // This rank has said why it failed; ends the job when all have, or have had the time for it.
  [[noreturn]] void end_all();

 private:
  // What a notice says; its text follows.
  enum class Notice : char { kFailed, kLeft, kReported };

  void tell_others(Notice notice, const std::string& text);
  // Takes in what other ranks told. `mutex_` is held.
  void listen();

  Timing timing_;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int largest_tag_ = 0;

  std::mutex mutex_;
  std::optional<Failure> failure_;
  std::vector<bool> has_left_;      // by rank
  std::vector<bool> has_reported_;  // by rank: has left, or said why it failed
  std::deque<std::string> told_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace gpu::comm
