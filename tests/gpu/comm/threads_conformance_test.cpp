// Ranks as threads, and one rank alone, do what every back end has to do.
#include "tests/gpu/comm/conformance.hpp"

namespace gpu::comm {

std::vector<int> sizes_under_test() {
  return {1, 2, 3, 4, 8};
}

void run_ranks(int num_ranks, const std::function<void(Communicator&)>& body) {
  run_thread_ranks(num_ranks, {.timeout_s = 60}, body);
  if (num_ranks == 1) {
    body(*make_self());
  }
}

}  // namespace gpu::comm
