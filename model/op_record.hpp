// Op records: one timed (or computed) op per CSV row, the common form of benchmarks, traces, the simulator and reports.
// Columns and meanings: docs/op-records.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace model {

enum class RecordSource { kCuda, kEmulated, kReference, kSimulated, kLimit };

// "cuda", "emulated", "reference", "simulated", "limit".
std::string_view record_source_name(RecordSource source);

// One field per column, in the order of the columns. Optional ones are empty in the file when nobody measured them.
struct OpRecord {
  std::string op = {};  // id from model/op_list, or the name of a collective
  std::string kind = {};
  int64_t layer = -1;
  std::string phase = {};
  int64_t rank = 0;
  int64_t tokens = 0;
  int64_t batch = 0;
  int64_t context_len = 0;
  std::string dtype = {};
  int64_t flops = 0;
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t wire_bytes = 0;
  double time_us = 0;
  std::optional<double> time_us_p10 = {};
  std::optional<double> time_us_p90 = {};
  int64_t repetitions = 0;
  RecordSource source = RecordSource::kReference;
  std::string device = {};
  std::optional<double> clock_mhz = {};
  std::string config_hash = {};
  std::string commit = {};

  bool operator==(const OpRecord&) const = default;
};

struct OpRecordFile {
  std::vector<std::string> header;  // provenance: the lines that start with '#', without it and the blank behind it
  std::vector<OpRecord> records;

  bool operator==(const OpRecordFile&) const = default;
};

// Columns may stand in any order. Throws InputError naming file, line and column: a missing, unknown or repeated column, a row of
// another length, a number that is none or below 0, an unknown source.
OpRecordFile read_op_records(const std::filesystem::path& path);

// Numbers are written so that reading gives the same bits. Throws InputError if the place cannot be written, CheckError if a
// text holds a line break.
void write_op_records(const std::filesystem::path& path, const OpRecordFile& file);

}  // namespace model
