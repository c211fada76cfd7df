// Tables that dsv3-sim printed with --json, checked before a page relies on them.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/scenario.hpp"

namespace report {

struct SimTable {
  std::string file;
  std::string name;      // "memory", "pareto", ...
  nlohmann::json value;  // an array of rows, or an object
};

// The tables of a file that a report shows: estimate and memory, pareto, matrix, skew, expert_load, rank_load. Others are named in a
// notice. Throws InputError: no tables, or one without the columns that it is drawn from.
std::vector<SimTable> read_sim_file(const std::filesystem::path& path, std::vector<Notice>& notices);

}  // namespace report
