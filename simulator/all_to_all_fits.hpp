// Constants of the all-to-all model, each fitted by all_to_all_fit.cpp to the published table that it names.
#pragma once

#include <span>
#include <string_view>

namespace simulator {

// One phase over NVLink: t = fixed + bytes / rate + overlap * c / (c + 168), c copies that leave the rank.
struct NvlinkPhaseFit {
  double fixed_us;
  double gb_per_s;
  double overlap_us;
  double us_per_128_experts;  // for experts beyond 256
};

// DeepEP low latency inside one NVLink domain.
struct NvlinkFit {
  std::string_view hardware;  // stem of the hardware file
  std::string_view version;   // of the SGLang image that was measured
  NvlinkPhaseFit dispatch;
  NvlinkPhaseFit combine;
};

std::span<const NvlinkFit> nvlink_fits();

// DeepEP low latency over the network: t = fixed + per_remote_frac * (1 - 1/nodes) + bytes off the node / (nic_frac * NIC rate).
struct NetworkPhaseFit {
  double fixed_us;
  double per_remote_frac_us;
  double nic_frac;
  double us_per_128_experts;
};

NetworkPhaseFit network_dispatch_fit();
NetworkPhaseFit network_combine_fit();

}  // namespace simulator
