// The shell command that starts an engine in the layout of a deployment.
#pragma once

#include <string>

#include "simulator/serving.hpp"

namespace simulator {

// engine: "sglang" or "vllm". One command for each node where the layout needs several, with what differs in shell variables. Throws
// InputError for another engine, or a layout that the engine has no flag for. `model` as in DeploymentRequest: a built-in name becomes
// its repository, a path is passed on.
std::string launch_command(const Deployment& deployment, const std::string& engine, const std::string& model);

}  // namespace simulator
