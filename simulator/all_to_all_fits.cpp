#include "simulator/all_to_all_fits.hpp"

#include <array>

namespace simulator {

std::span<const NvlinkFit> nvlink_fits() {
  // ai-dynamo/aiconfigurator@095f58a, wideep_deepep_ll_perf of h100_sxm, h200_sxm, b200_sxm (EP8) and gb200 (EP4), SGLang images
  // 0.5.6.post2 (table tagged 0.5.0) and 0.5.12; hidden 7168, top 6 and 8, 256 to 384 experts. Fitted by all_to_all_fit.cpp.
  static constexpr std::array kFits{
      NvlinkFit{"h100", "0.5.0", {15.458, 239.665, -2.959, 0}, {12.305, 197.007, -6.045, 0}},
      NvlinkFit{"h100", "0.5.12", {13.491, 254.809, -3.024, 1.579}, {13.990, 216.973, -4.733, -0.601}},
      NvlinkFit{"h200", "0.5.12", {11.552, 266.224, -1.661, 1.619}, {12.188, 222.319, -3.659, -0.002}},
      NvlinkFit{"b200", "0.5.12", {21.791, 512.658, -1.888, 3.269}, {22.218, 598.739, -2.554, -0.596}},
      NvlinkFit{"gb200-nvl72", "0.5.12", {16.748, 487.387, -1.241, 3.246}, {17.418, 562.114, -2.303, 0.411}},
  };
  return kFits;
}

// The same source, h100_sxm at EP16, 32 and 64, 256 and 288 experts: one law for the three sizes. NIC 50 GB/s.
NetworkPhaseFit network_dispatch_fit() {
  return {.fixed_us = 9.957, .per_remote_frac_us = 19.976, .nic_frac = 0.9570, .us_per_128_experts = 3.651};
}

NetworkPhaseFit network_combine_fit() {
  return {.fixed_us = 22.082, .per_remote_frac_us = 4.769, .nic_frac = 0.9284, .us_per_128_experts = 2.514};
}

}  // namespace simulator
