#include "simulator/all_to_all.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/all_to_all_fits.hpp"
#include "simulator/traffic.hpp"

namespace simulator {
namespace {

constexpr double kMeasuredInterval = 0.06;   // 90 % of leave-token-counts-out errors lie below 5.8 %
constexpr double kOtherSizeInterval = 0.12;  // another EP size of a measured tier
constexpr double kOtherGpuInterval = 0.30;   // rates carried over to another GPU
constexpr double kModelledInterval = 0.50;   // no table of the back end
constexpr double kRoceExtraUs = 1.9;         // cross-leaf 5.6 against 3.7 us, arXiv 2505.09343 table 5
constexpr int64_t kFittedExperts = 256;
constexpr double kOverlapCopies = 168;  // 24 tokens of 7 remote copies

constexpr std::array<std::pair<AllToAllBackend, std::string_view>, 8> kBackends{{
    {AllToAllBackend::kDeepEpLowLatency, "deepep-ll"},
    {AllToAllBackend::kDeepEpLowLatencyDedup, "deepep-ll-dedup"},
    {AllToAllBackend::kDeepEpNormal, "deepep-normal"},
    {AllToAllBackend::kDeepEpV2, "deepep-v2"},
    {AllToAllBackend::kNvlinkOneSided, "nvlink-one-sided"},
    {AllToAllBackend::kNvlinkTwoSided, "nvlink-two-sided"},
    {AllToAllBackend::kAllGatherReduceScatter, "allgather"},
    {AllToAllBackend::kFused, "fused"},
}};

// The fit of this GPU, or of the one whose NVLink is closest.
const NvlinkFit& nearest_fit(const Hardware& hardware, const std::string& version) {
  const NvlinkFit* best = nullptr;
  double best_distance = 0;
  for (const NvlinkFit& fit : nvlink_fits()) {
    const double rate = load_hardware(std::string(fit.hardware)).nvlink_gb_per_s.value;
    double distance = std::abs(std::log(rate / hardware.nvlink_gb_per_s.value));
    distance += fit.hardware == hardware.name ? -10 : 0;
    distance += fit.version == version ? -1 : 0;
    // Later rows are newer images.
    if (best == nullptr || distance <= best_distance) {
      best = &fit;
      best_distance = distance;
    }
  }
  return *best;
}

// The fitted share of the link, whatever its rate; a GPU with slower links than the fitted one uses a larger share of them: between the
// fitted share and the best seen on any GPU.
double carried_over_rate(const NvlinkFit& fit, double fitted_gb_per_s, double best_share, const Hardware& hardware) {
  const double fitted_link = load_hardware(std::string(fit.hardware)).nvlink_gb_per_s.value;
  const double link = hardware.nvlink_gb_per_s.value;
  const double share = fitted_gb_per_s / fitted_link;
  return link * (link < 0.9 * fitted_link ? std::sqrt(share * std::max(share, best_share)) : share);
}

double best_share(bool is_dispatch) {
  double best = 0;
  for (const NvlinkFit& fit : nvlink_fits()) {
    const double rate = (is_dispatch ? fit.dispatch : fit.combine).gb_per_s;
    best = std::max(best, rate / load_hardware(std::string(fit.hardware)).nvlink_gb_per_s.value);
  }
  return best;
}

std::string names() {
  std::string all;
  for (const auto& [backend, name] : kBackends) {
    all += fmt::format("{}{}", all.empty() ? "" : ", ", name);
  }
  return all;
}

}  // namespace

std::string_view backend_name(AllToAllBackend backend) {
  const auto* found = std::ranges::find(kBackends, backend, &std::pair<AllToAllBackend, std::string_view>::first);
  CHECK(found != kBackends.end());
  return found->second;
}

AllToAllBackend parse_backend(std::string_view name) {
  const auto* found = std::ranges::find(kBackends, name, &std::pair<AllToAllBackend, std::string_view>::second);
  if (found == kBackends.end()) {
    model::throw_input_error("all-to-all back end {}: expected {}", model::printable(std::string(name)), names());
  }
  return found->first;
}

void check_has_phases(AllToAllBackend backend) {
  if (backend == AllToAllBackend::kFused) {
    model::throw_input_error(
        "fused: its dispatch and combine are inside the experts' kernel; skew and estimate time it whole");
  }
}

NetworkLink parse_link(std::string_view name) {
  if (name == "infiniband" || name == "ib") {
    return NetworkLink::kInfiniBand;
  }
  if (name == "roce") {
    return NetworkLink::kRoce;
  }
  model::throw_input_error("link {}: expected infiniband or roce", model::printable(std::string(name)));
}

Deduplication network_deduplication(AllToAllBackend backend) {
  switch (backend) {
    case AllToAllBackend::kDeepEpLowLatency: return Deduplication::kPerCopy;
    case AllToAllBackend::kAllGatherReduceScatter: return Deduplication::kEverything;
    default: return Deduplication::kPerNode;
  }
}

Deduplication nvlink_deduplication(AllToAllBackend backend) {
  switch (backend) {
    case AllToAllBackend::kDeepEpLowLatency:
    case AllToAllBackend::kDeepEpLowLatencyDedup: return Deduplication::kPerCopy;
    case AllToAllBackend::kAllGatherReduceScatter: return Deduplication::kEverything;
    default: return Deduplication::kPerRank;
  }
}

AllToAll::AllToAll(const AllToAllSetup& setup) {
  const Hardware& hardware = setup.hardware;
  if (setup.num_ranks < 1 || setup.hidden_size < 1 || setup.num_experts < 1) {
    model::throw_input_error("all-to-all among {} ranks: expected at least one", setup.num_ranks);
  }
  const auto domain = static_cast<int64_t>(hardware.nvlink_domain_gpus.value);
  ranks_per_node_ = std::min(domain, setup.num_ranks);
  num_nodes_ = (setup.num_ranks + domain - 1) / domain;
  const bool is_nvlink_only =
      setup.backend == AllToAllBackend::kNvlinkOneSided || setup.backend == AllToAllBackend::kNvlinkTwoSided;
  if (is_nvlink_only && num_nodes_ > 1) {
    model::throw_input_error("{} on {} ranks: {} has NVLink among {}; deepep-ll or allgather would work",
                             backend_name(setup.backend),
                             setup.num_ranks,
                             hardware.name,
                             domain);
  }
  const CopyBytes bytes = copy_bytes(setup.hidden_size);
  const double nic = hardware.nic_gb_per_s.value;
  const double remote_frac = 1 - 1 / static_cast<double>(num_nodes_);
  const double more_experts = static_cast<double>(setup.num_experts - kFittedExperts) / 128;
  const double roce_us = setup.link == NetworkLink::kRoce && num_nodes_ > 1 ? kRoceExtraUs : 0;
  dispatch_.bytes_per_copy = static_cast<double>(bytes.dispatch + bytes.dispatch_scales);
  combine_.bytes_per_copy = static_cast<double>(bytes.combine);

  const NvlinkFit& fit = nearest_fit(hardware, setup.version);
  const bool is_fitted_gpu = fit.hardware == hardware.name;
  const auto low_latency =
      [&](Phase& phase, const NvlinkPhaseFit& nvlink, const NetworkPhaseFit& network, double share) {
        phase.nvlink_gb_per_s = carried_over_rate(fit, nvlink.gb_per_s, share, hardware);
        phase.network_gb_per_s = network.nic_frac * nic;
        if (num_nodes_ > 1) {
          phase.fixed_us = network.fixed_us + network.per_remote_frac_us * remote_frac +
                           network.us_per_128_experts * more_experts + roce_us;
        } else {
          phase.fixed_us = nvlink.fixed_us + nvlink.us_per_128_experts * more_experts;
          phase.overlap_us = nvlink.overlap_us;
        }
      };
  low_latency(dispatch_, fit.dispatch, network_dispatch_fit(), best_share(true));
  low_latency(combine_, fit.combine, network_combine_fit(), best_share(false));

  const double blackwell_extra_us = fit.hardware == "b200" || fit.hardware == "gb200-nvl72" ? 10 : 0;
  const double log_ranks = std::log2(static_cast<double>(setup.num_ranks));
  switch (setup.backend) {
    case AllToAllBackend::kDeepEpLowLatency: {
      basis_.source =
          num_nodes_ > 1
              ? "fit to DeepEP low latency, H100 EP16 to EP64, aiconfigurator@095f58a"
              : fmt::format("fit to DeepEP low latency, {} {}, aiconfigurator@095f58a", fit.hardware, fit.version);
      const bool is_fitted_size =
          num_nodes_ > 1 ? hardware.name == "h100" && (num_nodes_ == 2 || num_nodes_ == 4 || num_nodes_ == 8)
                         : is_fitted_gpu && setup.num_ranks == (hardware.name == "gb200-nvl72" ? 4 : 8);
      basis_.is_measured = is_fitted_size;
      const bool is_near = num_nodes_ > 1 ? nic == 50 : is_fitted_gpu;
      basis_.interval_frac = is_fitted_size ? kMeasuredInterval : is_near ? kOtherSizeInterval : kOtherGpuInterval;
      break;
    }
    case AllToAllBackend::kDeepEpLowLatencyDedup:
    case AllToAllBackend::kDeepEpV2:
      basis_ = {.source = "modelled: bytes after deduplication at the rates of DeepEP low latency; no table",
                .interval_frac = kModelledInterval};
      break;
    case AllToAllBackend::kFused:
      basis_ = {
          .source = "modelled: bytes after deduplication at the rates of DeepEP low latency, behind products; no table",
          .interval_frac = kModelledInterval};
      break;
    case AllToAllBackend::kDeepEpNormal:
      // aiconfigurator wideep_deepep_normal_perf: H100 EP8, EP16, EP32 and B200, GB200, 20 to 24 SMs. EP64 is left out (congested).
      dispatch_ = {.fixed_us = num_nodes_ > 1 ? 1.5 + 124 * remote_frac + roce_us : 29 + blackwell_extra_us,
                   .bytes_per_copy = dispatch_.bytes_per_copy,
                   .network_gb_per_s = 0.89 * nic,
                   .nvlink_gb_per_s = std::min(286.0, 0.64 * hardware.nvlink_gb_per_s.value)};
      combine_ = {
          .fixed_us = num_nodes_ > 1 ? 58 + 85 * remote_frac + roce_us : 50 + blackwell_extra_us,
          .bytes_per_copy = combine_.bytes_per_copy,
          .network_gb_per_s = 0.88 * nic,
          .nvlink_gb_per_s = std::min(blackwell_extra_us > 0 ? 330.0 : 286.0, 0.64 * hardware.nvlink_gb_per_s.value)};
      basis_ = {.source = "fit to DeepEP normal, 20-24 SMs, aiconfigurator@095f58a",
                .interval_frac = kOtherGpuInterval,
                .is_measured = is_fitted_gpu && num_nodes_ <= 4};
      break;
    case AllToAllBackend::kNvlinkOneSided:
      // TensorRT-LLM blog 18, GB200 EP8 to EP64; rates scale with NVLink.
      dispatch_ = {.fixed_us = 14.2 + 0.78 * log_ranks,
                   .bytes_per_copy = dispatch_.bytes_per_copy,
                   .nvlink_gb_per_s = 0.655 * hardware.nvlink_gb_per_s.value};
      combine_ = {.fixed_us = 28.2 + 0.55 * log_ranks,
                  .bytes_per_copy = combine_.bytes_per_copy,
                  .nvlink_gb_per_s = 0.767 * hardware.nvlink_gb_per_s.value};
      basis_ = {.source = "fit to TensorRT-LLM NVLinkOneSided, GB200, tech blog 18",
                .interval_frac = hardware.name == "gb200-nvl72" ? 0.15 : kOtherGpuInterval,
                .is_measured = hardware.name == "gb200-nvl72"};
      break;
    case AllToAllBackend::kNvlinkTwoSided:
      // aiconfigurator trtllm_alltoall_perf 1.3.0rc10, GB200 EP4 to EP64; the prepare kernel is in the fixed part.
      dispatch_ = {.fixed_us = 20.6 + 1.3 * log_ranks,
                   .bytes_per_copy = dispatch_.bytes_per_copy,
                   .nvlink_gb_per_s = 0.572 * hardware.nvlink_gb_per_s.value};
      combine_ = {.fixed_us = 11.2 + 0.7 * log_ranks,
                  .bytes_per_copy = combine_.bytes_per_copy,
                  .nvlink_gb_per_s = 0.517 * hardware.nvlink_gb_per_s.value};
      basis_ = {.source = "fit to TensorRT-LLM NVLinkTwoSided, GB200, aiconfigurator@095f58a",
                .interval_frac = hardware.name == "gb200-nvl72" ? 0.15 : kOtherGpuInterval,
                .is_measured = hardware.name == "gb200-nvl72"};
      break;
    case AllToAllBackend::kAllGatherReduceScatter:
      // BF16 both ways; 0.8 of the link as InferSim has it, the fixed part of NCCL's small messages (measurements, section 10).
      for (Phase* phase : {&dispatch_, &combine_}) {
        *phase = {.fixed_us = num_nodes_ > 1 ? 30.0 + roce_us : 15.0,
                  .bytes_per_copy = combine_.bytes_per_copy,
                  .network_gb_per_s = 0.8 * nic,
                  .nvlink_gb_per_s = 0.8 * hardware.nvlink_gb_per_s.value};
      }
      basis_ = {.source = "modelled: 0.8 of the links; no table", .interval_frac = kModelledInterval};
      break;
  }
}

double AllToAll::fused_us(const TierCopies& copies, double compute_us) const {
  return dispatch_.fixed_us + std::max(0.0, dispatch_wire_us(copies) + combine_wire_us(copies) - compute_us);
}

double AllToAll::wire_us(const Phase& phase, const TierCopies& copies) {
  const double network =
      copies.network > 0 ? copies.network * phase.bytes_per_copy / (phase.network_gb_per_s * 1e3) : 0;
  const double nvlink = copies.nvlink > 0 ? copies.nvlink * phase.bytes_per_copy / (phase.nvlink_gb_per_s * 1e3) : 0;
  return std::max(network, nvlink);
}

double AllToAll::time_us(const Phase& phase, const TierCopies& copies) {
  return phase.fixed_us + wire_us(phase, copies) + phase.overlap_us * copies.nvlink / (copies.nvlink + kOverlapCopies);
}

TierCopies even_copies(const AllToAll& all_to_all,
                       AllToAllBackend backend,
                       int64_t num_ranks,
                       int64_t experts_per_token,
                       double tokens_per_rank) {
  const auto ranks = static_cast<double>(num_ranks);
  const auto nodes = static_cast<double>(all_to_all.num_nodes());
  const auto k = static_cast<double>(experts_per_token);
  const double ranks_of_node = ranks / nodes;
  const auto reached = [&](double places) { return places * (1 - std::pow(1 - 1 / places, k)); };
  TierCopies copies;
  switch (network_deduplication(backend)) {
    case Deduplication::kPerCopy: copies.network = k * (1 - 1 / nodes); break;
    case Deduplication::kEverything: copies.network = ranks - ranks_of_node; break;
    default: copies.network = reached(nodes) * (1 - 1 / nodes);
  }
  switch (nvlink_deduplication(backend)) {
    case Deduplication::kPerCopy:
      // Copies that stay in the node, and those that arrive at it once and are forwarded.
      copies.nvlink =
          network_deduplication(backend) == Deduplication::kPerCopy ? k * (1 / nodes - 1 / ranks) : k * (1 - 1 / ranks);
      break;
    case Deduplication::kPerRank:
      copies.nvlink = reached(ranks);  // TensorRT-LLM's tables fit best with the rank's own copy counted
      break;
    default: copies.nvlink = nodes > 1 ? ranks : ranks - 1;
  }
  copies.network *= tokens_per_rank;
  copies.nvlink *= tokens_per_rank;
  return copies;
}

}  // namespace simulator
