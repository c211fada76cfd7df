#include "gpu/comm/mpi_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace gpu::comm {

namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(1);
// For ranks that failed to say so before the job is ended.
constexpr auto kTimeToReport = std::chrono::seconds(2);

bool all_of(const std::vector<bool>& flags) {
  return std::all_of(flags.begin(), flags.end(), [](bool flag) { return flag; });
}

}  // namespace

void check_mpi(int status, const char* call) {
  if (status != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(status, text, &length);
    throw CommError(fmt::format("{}: {}", call, std::string_view(text, static_cast<size_t>(length))));
  }
}

MpiJob::MpiJob(const Timing& timing) : timing_(timing) {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  if (provided < MPI_THREAD_MULTIPLE) {
    throw CommError("this MPI does not let several threads of a process call it");
  }
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &notices_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(notices_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(notices_, &rank_), "MPI_Comm_rank");
  int num_ranks = 0;
  check_mpi(MPI_Comm_size(notices_, &num_ranks), "MPI_Comm_size");
  has_left_.resize(static_cast<size_t>(num_ranks));
  has_reported_.resize(static_cast<size_t>(num_ranks));
  const int* largest_tag = nullptr;
  int is_set = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &is_set),
            "MPI_Comm_get_attr");
  largest_tag_ = is_set != 0 ? *largest_tag : 32767;  // the least that the standard allows
}

void MpiJob::tell_others(Notice notice, const std::string& text) {
  // Fire and forget: the message is small, and its bytes last.
  const std::string& message = told_.emplace_back(static_cast<char>(notice) + text);
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) {
      MPI_Request request = MPI_REQUEST_NULL;
      check_mpi(MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_CHAR, other, 0, notices_, &request),
                "MPI_Isend");
      check_mpi(MPI_Request_free(&request), "MPI_Request_free");
    }
  }
}

void MpiJob::listen() {
  while (true) {
    int has_come = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status = {};
    check_mpi(MPI_Improbe(MPI_ANY_SOURCE, 0, notices_, &has_come, &handle, &status), "MPI_Improbe");
    if (has_come == 0) {
      return;
    }
    int length = 0;
    check_mpi(MPI_Get_count(&status, MPI_CHAR, &length), "MPI_Get_count");
    std::string message(static_cast<size_t>(length), '\0');
    check_mpi(MPI_Mrecv(message.data(), length, MPI_CHAR, &handle, MPI_STATUS_IGNORE), "MPI_Mrecv");
    const auto from = static_cast<size_t>(status.MPI_SOURCE);
    switch (static_cast<Notice>(message[0])) {
      case Notice::kFailed:
        if (!failure_) {
          failure_ = {status.MPI_SOURCE, message.substr(1)};
        }
        break;
      case Notice::kLeft: has_left_[from] = true; [[fallthrough]];
      case Notice::kReported: has_reported_[from] = true; break;
    }
  }
}

void MpiJob::fail(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_) {
    failure_ = {rank_, why};
    tell_others(Notice::kFailed, why);
  }
}

std::optional<MpiJob::Failure> MpiJob::failure() {
  const std::lock_guard lock(mutex_);
  listen();
  return failure_;
}

bool MpiJob::has_left(int rank) {
  const std::lock_guard lock(mutex_);
  return has_left_[static_cast<size_t>(rank)];
}

void MpiJob::keep(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
}

void MpiJob::leave() {
  std::unique_lock lock(mutex_);
  has_left_[static_cast<size_t>(rank_)] = true;
  tell_others(Notice::kLeft, "");
  while (listen(), !failure_ && !all_of(has_left_)) {
    lock.unlock();
    std::this_thread::sleep_for(kBetweenLooks);
    lock.lock();
  }
}

void MpiJob::finish() {
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

void MpiJob::end_all() {
  const auto end = std::chrono::steady_clock::now() + kTimeToReport;
  std::unique_lock lock(mutex_);
  has_reported_[static_cast<size_t>(rank_)] = true;
  tell_others(Notice::kReported, "");
  while (listen(), !all_of(has_reported_) && std::chrono::steady_clock::now() < end) {
    lock.unlock();
    std::this_thread::sleep_for(kBetweenLooks);
    lock.lock();
  }
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();  // what comes before does not return
}

}  // namespace gpu::comm
