// The tables of a directory as answers for one GPU: which files feed which op family is the same as for calibration.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "model/config.hpp"
#include "simulator/calibration.hpp"
#include "simulator/hardware.hpp"
#include "simulator/op_table.hpp"

namespace simulator {

// One for each family of kOpFamilies, in that order; null where no table has rows of this GPU, or none whose shapes are those of
// `config` (tables of experts and attention are of DeepSeek-V3). Throws InputError: no directory, no table at all, a table that cannot
// be read.
std::vector<std::shared_ptr<const OpTable>> load_op_tables(const std::filesystem::path& directory,
                                                           const Hardware& hardware,
                                                           const model::ModelConfig& config);

// The fits with the tables beside them: a family that has a table answers from it.
std::vector<ChosenFit> with_tables(std::vector<ChosenFit> fits, std::vector<std::shared_ptr<const OpTable>> tables);

}  // namespace simulator
