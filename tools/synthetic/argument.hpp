// The spelling of a generated checkpoint on a command line: synthetic:NAME or synthetic:NAME?seed=N.
#pragma once

#include <memory>
#include <string>

#include "tools/synthetic/generator.hpp"

namespace tools::synthetic {

[[nodiscard]] bool is_synthetic(const std::string& argument);

// Seed 0 unless stated. Throws InputError: an unknown fixture (listing the known ones), a seed that is no number below 2^64,
// anything else behind the name.
[[nodiscard]] std::unique_ptr<SyntheticWeights> open_synthetic(const std::string& argument);

}  // namespace tools::synthetic
