// Published end-to-end measurements, row by row, as deployments with the token time that was measured.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "simulator/serving.hpp"

namespace simulator {

struct SiliconRow {
  std::string id;
  std::string gpu;      // stem of a hardware file
  std::string backend;  // name of an engine
  std::string phase;    // "agg", "disagg"
  int64_t line = 0;
  Deployment deployment;
  double tpot_ms = 0;
};

struct SiliconRows {
  std::vector<SiliconRow> rows;
  int64_t num_skipped = 0;                // of these kinds, by reason below
  std::vector<std::string> skip_reasons;  // "84 rows: MTP suspected", ...
};

// The columns of e2e_tpot_b200_b300_gb200_fp8.csv. Rows whose mtp_status is suspect_on are skipped unless `with_suspects`, rows of a
// precision other than fp8 always; those and rows whose mtp_status is on are taken to draft as the engine usually does. Where
// encoding_flag says that tp or dp holds the wrong number, the deployment is one node. Throws InputError naming file and line.
SiliconRows read_silicon(const std::filesystem::path& path, bool with_suspects);

}  // namespace simulator
