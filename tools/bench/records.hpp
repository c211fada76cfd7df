// Measurements as op records (docs/op-records.md), with the machine that they were made on.
#pragma once

#include <filesystem>
#include <vector>

#include "model/op_record.hpp"
#include "tools/bench/reference_bench.hpp"

namespace tools {

// "host.fma" and "host.read".
std::vector<model::OpRecord> records_of(const MachineLimits& limits);
// "bench.MODEL.OP", one row for each number of tokens.
std::vector<model::OpRecord> records_of(const std::vector<LinearRow>& rows);

// Source reference, this CPU, this commit. Throws InputError.
void write_bench_records(const std::filesystem::path& path, std::vector<model::OpRecord> records, int num_threads);

}  // namespace tools
