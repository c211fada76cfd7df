#include "tools/bench/links_bench.hpp"

#include <fmt/core.h>

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/comm/mpi.hpp"
#include "model/op_record.hpp"
#include "tools/bench/link_times.hpp"
#include "tools/bench/machine.hpp"
#include "tools/cli.hpp"
#include "version.hpp"

namespace tools {
namespace {

double gb_per_s(const LinksRow& row) {
  return static_cast<double>(row.num_bytes) / row.time_us / 1e3;
}

std::string device_of(const LinkRank& rank) {
  return rank.gpu.empty() ? cpu_name() : rank.gpu;
}

model::OpRecord record_of(const LinksRow& row, const LinksFlags& flags, const LinkRank& rank) {
  return {.op = fmt::format("links.{}.{}", flags.comm, row.collective),
          .kind = row.collective,
          .phase = "bench",
          .tokens = row.num_tokens,
          .batch = rank.host.size(),
          .dtype = row.type,
          .activation_bytes = row.num_bytes,
          .wire_bytes = row.sent_bytes,
          .time_us = row.time_us,
          .time_us_p10 = row.time_us_p10,
          .time_us_p90 = row.time_us_p90,
          .repetitions = flags.num_repetitions,
          .source = rank.gpu.empty() ? model::RecordSource::kReference : model::RecordSource::kCuda,
          .device = device_of(rank),
          .commit = DSV3_COMMIT};
}

void print(const std::vector<LinksRow>& rows, const LinksFlags& flags, const LinkRank& rank) {
  if (flags.json) {
    nlohmann::ordered_json out{{"device", device_of(rank)},
                               {"comm", flags.comm},
                               {"ranks", rank.host.size()},
                               {"rows", nlohmann::ordered_json::array()}};
    for (const LinksRow& row : rows) {
      out["rows"].push_back({{"collective", row.collective},
                             {"bytes", row.num_bytes},
                             {"count", row.count},
                             {"type", row.type},
                             {"tokens", row.num_tokens},
                             {"sent_bytes", row.sent_bytes},
                             {"time_us", row.time_us},
                             {"time_us_p10", row.time_us_p10},
                             {"time_us_p90", row.time_us_p90},
                             {"algbw_gb_per_s", gb_per_s(row)},
                             {"busbw_gb_per_s", gb_per_s(row) * row.bus_factor}});
    }
    fmt::print("{}\n", out.dump(1));
    return;
  }
  fmt::print("{}, {} ranks over {}\n{:<15}{:>10}{:>10}  {:<5}{:>7}{:>12}{:>12}{:>12}\n",
             device_of(rank),
             rank.host.size(),
             flags.comm,
             "collective",
             "size B",
             "count",
             "type",
             "tokens",
             "time us",
             "algbw GB/s",
             "busbw GB/s");
  for (const LinksRow& row : rows) {
    fmt::print("{:<15}{:>10}{:>10}  {:<5}{:>7}{:>12.1f}{:>12.3f}{:>12.3f}\n",
               row.collective,
               row.num_bytes,
               row.count,
               row.type,
               row.num_tokens > 0 ? std::to_string(row.num_tokens) : "",
               row.time_us,
               gb_per_s(row),
               gb_per_s(row) * row.bus_factor);
  }
}

void run_rank(const LinkRank& rank, const LinksFlags& flags) {
  auto rows = time_collectives(rank, flags);
  const auto more = time_experts(rank, flags);
  rows.insert(rows.end(), more.begin(), more.end());
  if (rank.host.rank() != 0) {
    return;
  }
  if (!flags.out.empty()) {
    std::vector<model::OpRecord> records;
    for (const LinksRow& row : rows) {
      records.push_back(record_of(row, flags, rank));
    }
    model::write_op_records(
        flags.out,
        {.header = {fmt::format("engine=collectives over {}, {} ranks", flags.comm, rank.host.size())},
         .records = std::move(records)});
  }
  print(rows, flags, rank);
}

int run_links(const LinksFlags& flags) {
  if (flags.min_bytes > flags.max_bytes) {
    model::throw_input_error("--min-bytes {}: more than --max-bytes {}", flags.min_bytes, flags.max_bytes);
  }
  const auto say = [](int rank, const std::string& what) { fmt::print(stderr, "rank {}: {}\n", rank, what); };
  const auto body = [&](gpu::comm::Communicator& ranks) {
    std::deque<std::vector<std::byte>> memory;
    const auto allocate = [&](int64_t num_bytes) { return memory.emplace_back(static_cast<size_t>(num_bytes)).data(); };
    run_rank({.host = ranks, .links = ranks, .allocate = allocate, .finish = [] {}}, flags);
  };
  if (flags.comm == "nccl") {
    run_nccl_ranks(
        flags.num_ranks, [&](const LinkRank& rank) { run_rank(rank, flags); }, say);
  } else if (flags.comm == "mpi") {
    gpu::comm::run_mpi_rank({}, body, say);
  } else {
    gpu::comm::run_thread_ranks(flags.num_ranks, {}, body, say);
  }
  return kExitOk;
}

}  // namespace

std::function<int()> add_links_bench(CLI::App& app) {
  const auto flags = std::make_shared<LinksFlags>();
  const CLI::Range sizes(int64_t{4}, int64_t{1} << 32);
  app.add_option(
         "--comm", flags->comm, "threads of this process; mpi (start with mpirun); nccl, with a GPU for each rank")
      ->check(CLI::IsMember({"threads", "mpi", "nccl"}))
      ->capture_default_str();
  app.add_option("--ranks", flags->num_ranks, "threads or GPUs; with mpi, mpirun says how many")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--collective", flags->collectives, "only these")
      ->delimiter(',')
      ->check(CLI::IsMember(
          {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "dispatch", "combine"}));
  app.add_option("--min-bytes", flags->min_bytes, "smallest message; each next one is four times as large")
      ->check(sizes)
      ->capture_default_str();
  app.add_option("--max-bytes", flags->max_bytes, "largest message")->check(sizes)->capture_default_str();
  app.add_option("--tokens", flags->tokens, "tokens of a rank that dispatch and combine exchange (8 of 256 experts)")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--min-time", flags->min_time_s, "seconds of each measurement, at least")->capture_default_str();
  app.add_option("--repetitions", flags->num_repetitions, "measurements of each; their median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--json", flags->json, "for machines");
  app.add_option("--out", flags->out, "write op records (docs/op-records.md)");
  app.footer(
      "\nTimes of threads and mpi are of this machine's memory, not of NVLink or a network; nccl has not been run on "
      "GPUs so far, and has no\n"
      "dispatch and combine. Columns as nccl-tests has them.\n"
      "\nExamples:\n"
      "  $ dsv3-bench links --ranks 8 --collective all_reduce,all_to_all\n"
      "  $ mpirun -np 4 dsv3-bench links --comm mpi --out links.csv\n"
      "  $ dsv3-bench links --comm nccl --ranks 8 --max-bytes 268435456\n");
  return [flags] { return run_links(*flags); };
}

}  // namespace tools
