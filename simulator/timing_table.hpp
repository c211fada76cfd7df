// Measured times as people publish them, in one form: labels that must agree, numeric axes to interpolate along, times in us.
// It reads; what a time means for an op is for others to say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/csv_table.hpp"

namespace simulator {

enum class TimingKind {
  kGemm,
  kGroupedGemm,
  kMoe,          // all experts of a rank: gate, up, activation, down
  kMlaDecode,    // attention kernel or module
  kBatchMatmul,  // per-head products of the absorbed form
  kCollective,   // all-reduce and friends by message size
  kDispatch,     // dispatch and combine of a token batch
  kLayer,        // a layer, or a mixed batch, by tokens
  kLink,         // one small message
};

std::string_view timing_kind_name(TimingKind kind);

struct TimingRow {
  int64_t line = 0;
  std::vector<std::string> labels;
  std::vector<double> axes;
  std::vector<std::optional<double>> times_us;  // at least one is there
};

struct TimingTable {
  std::string path;
  std::string format;  // whose columns these are
  TimingKind kind = TimingKind::kGemm;
  std::vector<std::string> label_names;
  std::vector<std::string> axis_names;
  std::vector<std::string> time_names;
  std::vector<TimingRow> rows;
};

// Recognises the format by its columns (timing_formats.cpp). Times end in _ns, _us, _ms or _s; a format that is known for one unit
// may leave it out. Throws InputError naming file and line or column: columns that no format has or that one lacks, a unit nobody
// knows, a number that is none, negative or infinite, a table without rows.
TimingTable read_timing_table(const std::filesystem::path& path);
TimingTable to_timing_table(const CsvTable& csv);

// The text that nccl-tests prints: axis message_bytes and num_gpus, times out_of_place and in_place. Throws InputError.
TimingTable read_nccl_tests(const std::filesystem::path& path);

}  // namespace simulator
