// In place of open_cuda.cpp in a program built without nvcc.
#include "model/check.hpp"
#include "tools/device/open.hpp"

namespace tools {

std::string why_no_cuda() {
  return "this program was built without CUDA (cmake -DDSV3_CUDA=ON)";
}

std::unique_ptr<gpu::Backend> open_cuda(bool /*fp16*/) {
  model::throw_input_error("--device cuda: {}", why_no_cuda());
}

RankDevice open_cuda_rank(gpu::comm::Communicator& /*world*/, bool /*fp16*/) {
  model::throw_input_error("--device cuda: {}", why_no_cuda());
}

std::string cuda_name() {
  model::throw_input_error("--device cuda: {}", why_no_cuda());
}

std::vector<double> time_on_cuda(gpu::Backend& /*device*/,
                                 const std::function<void()>& /*work*/,
                                 int /*num_repetitions*/) {
  model::throw_input_error("--device cuda: {}", why_no_cuda());
}

}  // namespace tools
