// Fits the constants of all_to_all_fits.hpp to measured rows: how the shipped ones came about, and how cross-validation gets others.
#pragma once

#include <vector>

#include "simulator/all_to_all_fits.hpp"
#include "simulator/alltoall_validation.hpp"

namespace simulator {

// Rows of one GPU and version in one NVLink domain, one phase. Relative least squares. CHECKs that there are rows.
NvlinkPhaseFit fit_nvlink_phase(const std::vector<AllToAllRow>& rows);
double nvlink_phase_us(const NvlinkPhaseFit& fit, const AllToAllRow& row);

// Rows on several nodes, one phase; `nic_gb_per_s` of their GPUs.
NetworkPhaseFit fit_network_phase(const std::vector<AllToAllRow>& rows, double nic_gb_per_s);
double network_phase_us(const NetworkPhaseFit& fit, const AllToAllRow& row, double nic_gb_per_s);

}  // namespace simulator
