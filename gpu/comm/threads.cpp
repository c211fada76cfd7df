// Ranks as threads: starts them, and gathers how they ended. A process of one rank is a job of one thread.
#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "gpu/comm/collectives.hpp"
#include "gpu/comm/communicator.hpp"
#include "gpu/comm/error_text.hpp"
#include "gpu/comm/thread_transport.hpp"
#include "gpu/portable/require.hpp"

namespace gpu::comm {

std::unique_ptr<Communicator> make_self() {
  return std::make_unique<Collectives>(std::make_unique<ThreadTransport>(make_thread_world(1, {}), 0));
}

void run_thread_ranks(int num_ranks,
                      const Timing& timing,
                      const std::function<void(Communicator&)>& body,
                      const std::function<void(int rank, const std::string& what)>& on_failure) {
  require(num_ranks > 0, "a job needs a rank");
  const auto world = make_thread_world(num_ranks, timing);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_ranks));
  std::mutex reporting;
  const auto run_rank = [&](int rank) {
    try {
      Collectives communicator(std::make_unique<ThreadTransport>(world, rank));
      body(communicator);
    } catch (...) {
      const auto error = std::current_exception();
      errors[static_cast<size_t>(rank)] = error;
      world->job->fail(rank, text_of(error));
      if (on_failure) {
        const std::lock_guard lock(reporting);
        on_failure(rank, text_of(error));
      }
    }
    world->job->leave(rank);
  };
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back(run_rank, rank);
    }
  }
  // The one that failed first knows why; it has no error of its own if it aborted the job and went on.
  if (const auto first = world->job->failed_rank; first && errors[static_cast<size_t>(*first)]) {
    std::rethrow_exception(errors[static_cast<size_t>(*first)]);
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

}  // namespace gpu::comm
