// In place of link_ranks_nccl.cpp in a program built without nvcc.
#include "model/check.hpp"
#include "tools/bench/link_times.hpp"

namespace tools {

void run_nccl_ranks(int /*num_ranks*/,
                    const std::function<void(const LinkRank&)>& /*body*/,
                    const std::function<void(int rank, const std::string& what)>& /*on_failure*/) {
  model::throw_input_error(
      "--comm nccl: this program was built without CUDA (cmake -DDSV3_CUDA=ON); --comm threads needs no GPU");
}

}  // namespace tools
