// The flags that describe a deployment, for every command of dsv3-sim that estimates one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "simulator/calibration.hpp"
#include "simulator/deployment.hpp"
#include "simulator/what_if.hpp"
#include "tools/sim_flags.hpp"

namespace tools {

struct DeploymentFlags {
  simulator::DeploymentRequest request;
  LayoutFlags layout;
  LayoutFlags prefill_layout;
  simulator::HardwareChanges changes;  // but for those that changes_of() adds
  std::string fp8_accumulation;
  std::string link = "infiniband";
  double layer_correlation = 0;
  double stale_correlation = 1;
  uint64_t seed = 1;
  std::string all_to_all;
  std::string calibration;
  std::string timing_tables;
  OutputFlags output;
};

// All but the layout.
void add_workload(CLI::App& command, DeploymentFlags& flags);
void add_deployment(CLI::App& command, DeploymentFlags& flags);

// What the flags say, without the hardware changes. Throws InputError.
simulator::DeploymentRequest request_of(const DeploymentFlags& flags);
simulator::HardwareChanges changes_of(const DeploymentFlags& flags);
simulator::Deployment deployment_of(const DeploymentFlags& flags);
simulator::MoeCurves curves_of(const DeploymentFlags& flags);
// The constants for the deployment's hardware, with the rows of --timing-tables beside them.
std::vector<simulator::ChosenFit> fits_of(const DeploymentFlags& flags, const simulator::Deployment& deployment);
// From a file that calibrate wrote; the built-in ones without a path.
std::vector<simulator::Calibration> calibrations(const std::string& path);

}  // namespace tools
