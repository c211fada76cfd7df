#include "simulator/all_to_all_fit.hpp"

#include "simulator/fit_constants.hpp"
#include "simulator/traffic.hpp"

namespace simulator {
namespace {

double bytes_per_copy(const AllToAllRow& row) {
  const CopyBytes bytes = copy_bytes(row.hidden_size);
  return static_cast<double>(row.is_dispatch ? bytes.dispatch + bytes.dispatch_scales : bytes.combine);
}

double copies(const AllToAllRow& row, double places) {
  return static_cast<double>(row.tokens_per_rank * row.experts_per_token) * (1 - 1 / places);
}

double more_experts(const AllToAllRow& row) {
  return static_cast<double>(row.num_experts - 256) / 128;
}

// Factors of fixed_us, 1 / gb_per_s, overlap_us, us_per_128_experts.
std::vector<double> nvlink_basis(const AllToAllRow& row) {
  const double off_rank = copies(row, static_cast<double>(row.num_ranks));
  return {1, off_rank * bytes_per_copy(row) / 1e3, off_rank / (off_rank + 168), more_experts(row)};
}

// Factors of fixed_us, per_remote_frac_us, 1 / nic_frac, us_per_128_experts.
std::vector<double> network_basis(const AllToAllRow& row, double nic_gb_per_s) {
  const auto nodes = static_cast<double>(row.num_nodes);
  return {1, 1 - 1 / nodes, copies(row, nodes) * bytes_per_copy(row) / (1e3 * nic_gb_per_s), more_experts(row)};
}

double product(const std::vector<double>& basis, const std::vector<double>& factors) {
  double sum = 0;
  for (size_t i = 0; i < basis.size(); ++i) {
    sum += basis[i] * factors[i];
  }
  return sum;
}

}  // namespace

NvlinkPhaseFit fit_nvlink_phase(const std::vector<AllToAllRow>& rows) {
  std::vector<std::vector<double>> basis;
  std::vector<double> measured;
  for (const AllToAllRow& row : rows) {
    basis.push_back(nvlink_basis(row));
    measured.push_back(row.measured_us);
  }
  const std::vector<double> fitted = fit_relative(basis, measured);
  return {.fixed_us = fitted[0], .gb_per_s = 1 / fitted[1], .overlap_us = fitted[2], .us_per_128_experts = fitted[3]};
}

double nvlink_phase_us(const NvlinkPhaseFit& fit, const AllToAllRow& row) {
  return product(nvlink_basis(row), {fit.fixed_us, 1 / fit.gb_per_s, fit.overlap_us, fit.us_per_128_experts});
}

NetworkPhaseFit fit_network_phase(const std::vector<AllToAllRow>& rows, double nic_gb_per_s) {
  std::vector<std::vector<double>> basis;
  std::vector<double> measured;
  for (const AllToAllRow& row : rows) {
    basis.push_back(network_basis(row, nic_gb_per_s));
    measured.push_back(row.measured_us);
  }
  const std::vector<double> fitted = fit_relative(basis, measured);
  return {.fixed_us = fitted[0],
          .per_remote_frac_us = fitted[1],
          .nic_frac = 1 / fitted[2],
          .us_per_128_experts = fitted[3]};
}

double network_phase_us(const NetworkPhaseFit& fit, const AllToAllRow& row, double nic_gb_per_s) {
  return product(network_basis(row, nic_gb_per_s),
                 {fit.fixed_us, fit.per_remote_frac_us, 1 / fit.nic_frac, fit.us_per_128_experts});
}

}  // namespace simulator
