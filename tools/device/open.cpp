#include "tools/device/open.hpp"

#include <charconv>

#include "model/check.hpp"

namespace tools {
namespace {

constexpr std::string_view kRandom = "random:";

gpu::emulation::Order order_of(const std::string& text) {
  using gpu::emulation::OrderKind;
  if (text == "forward") {
    return {.kind = OrderKind::kForward};
  }
  if (text == "reverse") {
    return {.kind = OrderKind::kReverse};
  }
  gpu::emulation::Order order{.kind = OrderKind::kRandom};
  if (text.starts_with(kRandom)) {
    const char* const begin = text.data() + kRandom.size();
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, order.seed);
    if (error == std::errc() && rest == end) {
      return order;
    }
  }
  model::throw_input_error("--order {}: expected forward, reverse or random:SEED", text);
}

}  // namespace

void require_cuda() {
  if (const std::string why = why_no_cuda(); !why.empty()) {
    model::throw_input_error("--device cuda: {}; --device emulated runs the same kernels", why);
  }
}

gpu::emulation::Options emulation_options(const DeviceFlags& flags, int num_threads, const Peers& peers) {
  return {.order = order_of(flags.order),
          .num_os_threads = flags.races ? 1 : num_threads,
          .memory_bytes = int64_t{64} << 30,
          .peers = peers};
}

std::unique_ptr<gpu::Backend> open_device(const DeviceFlags& flags, int num_threads, const Peers& peers) {
  if (flags.device == "cuda") {
    require_cuda();
    return open_cuda(flags.fp16);
  }
  if (flags.fp16 && flags.races) {
    model::throw_input_error("--races: the kernels that are checked compute in BF16, those of profile fp16 in FP16");
  }
  const auto options = emulation_options(flags, num_threads, peers);
  if (flags.fp16) {
    return gpu::make_emulated_fp16_backend(options);
  }
  return flags.races ? gpu::make_checked_backend(options) : gpu::make_emulated_backend(options);
}

RankDevice open_rank_device(const DeviceFlags& flags, gpu::comm::Communicator& world, const Peers& peers) {
  if (flags.device == "cuda") {
    return open_cuda_rank(world, flags.fp16);
  }
  return {.links = nullptr, .backend = open_device(flags, 1, peers)};
}

bool is_fp8_cache(const std::string& kv, bool fp16) {
  const std::string half = fp16 ? "fp16" : "bf16";
  if (!kv.empty() && kv != "fp8" && kv != half) {
    model::throw_input_error("--kv {}: expected {} or fp8 in this profile", kv, half);
  }
  return kv == "fp8";
}

}  // namespace tools
