#include "tools/bench/records.hpp"

#include <fmt/format.h>

#include <iterator>

#include "model/dtype.hpp"
#include "reference/simd/kernels.hpp"
#include "simulator/error_summary.hpp"
#include "tools/bench/machine.hpp"
#include "version.hpp"

namespace tools {
namespace {

constexpr double kUsPerS = 1e6;
constexpr double kGiga = 1e9;

std::string dtype_text(model::DType dtype) {
  return std::string(model::dtype_name(dtype));
}

}  // namespace

std::vector<model::OpRecord> records_of(const MachineLimits& limits) {
  constexpr int64_t kFlops = 2'000'000'000;
  return {{.op = "host.fma",
           .kind = "fma",
           .dtype = dtype_text(model::DType::kF32),
           .flops = kFlops,
           .time_us = static_cast<double>(kFlops) / 2 / (limits.fma_gmac_per_s * kGiga) * kUsPerS},
          {.op = "host.read",
           .kind = "read",
           .weight_bytes = limits.buffer_bytes,
           .time_us = static_cast<double>(limits.buffer_bytes) / (limits.read_gb_per_s * kGiga) * kUsPerS}};
}

std::vector<model::OpRecord> records_of(const std::vector<LinearRow>& rows) {
  std::vector<model::OpRecord> records;
  for (const LinearRow& row : rows) {
    const int64_t weights = row.out_dim * row.in_dim;
    const int64_t macs = row.num_tokens * weights;
    constexpr int64_t kBf16Bytes = 2;
    const bool is_fp8 = row.format == "fp8";
    records.push_back({.op = fmt::format("bench.{}.{}", row.model, row.op),
                       .kind = "linear",
                       .phase = "decode",
                       .tokens = row.num_tokens,
                       .dtype = dtype_text(is_fp8 ? model::DType::kF8E4M3 : model::DType::kBF16),
                       .flops = 2 * macs,
                       .weight_bytes = is_fp8 ? weights : kBf16Bytes * weights,
                       .activation_bytes = kBf16Bytes * row.num_tokens * (row.in_dim + row.out_dim),
                       .time_us = simulator::quantile(row.seconds, 0.5) * kUsPerS,
                       .time_us_p10 = simulator::quantile(row.seconds, 0.1) * kUsPerS,
                       .time_us_p90 = simulator::quantile(row.seconds, 0.9) * kUsPerS,
                       .repetitions = std::ssize(row.seconds)});
  }
  return records;
}

void write_bench_records(const std::filesystem::path& path, std::vector<model::OpRecord> records, int num_threads) {
  for (model::OpRecord& record : records) {
    record.source = model::RecordSource::kReference;
    record.device = cpu_name();
    record.commit = DSV3_COMMIT;
  }
  model::write_op_records(path,
                          {.header = {fmt::format("engine=CPU reference, {}, {} threads",
                                                  reference::simd::level_name(reference::simd::kernels().level),
                                                  num_threads),
                                      "times of host.*: the best repetition; of linears: the median"},
                           .records = std::move(records)});
}

}  // namespace tools
