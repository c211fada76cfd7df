#include "tools/bench/links_bench.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/comm/mpi.hpp"
#include "gpu/comm/token_exchange.hpp"
#include "tools/bench/machine.hpp"
#include "tools/bench/records.hpp"
#include "tools/cli.hpp"

namespace tools {
namespace {

using gpu::comm::Communicator;
using gpu::comm::Element;

struct LinksFlags {
  std::string comm = "threads";
  int num_ranks = 4;
  std::vector<std::string> collectives;
  int64_t min_bytes = 1 << 10;
  int64_t max_bytes = 4 << 20;
  std::vector<int64_t> tokens{1, 32, 128};
  double min_time_s = 0.05;
  int num_repetitions = 5;
  bool json = false;
  std::string out;
};

// One line of the table. Bandwidths as nccl-tests defines them: algorithm bandwidth is bytes / time; bus bandwidth is what each link has
// to carry at least, to be held against the link's own.
struct LinksRow {
  std::string collective;
  int64_t num_bytes = 0;  // all-reduce, broadcast, send: of the buffer; the others: of all ranks' buffers together
  int64_t count = 0;
  std::string type;
  int64_t sent_bytes = 0;  // by the first rank to others
  int64_t num_tokens = 0;  // of dispatch and combine, a rank's
  double time_us = 0;
  double time_us_p10 = 0;
  double time_us_p90 = 0;
  double bus_factor = 1;
};

// A collective as it is called again and again; `count` elements for the first rank to last.
struct Exchange {
  std::string name;
  std::string type;
  int64_t num_bytes = 0;
  int64_t count = 0;
  int64_t num_tokens = 0;
  double bus_factor = 1;
  std::function<void()> call;
};

// Medians over repetitions; the same number of calls on every rank, since all of them take part.
class Clocked {
 public:
  Clocked(Communicator& ranks, const LinksFlags& flags) : ranks_(ranks), flags_(flags) {}

  LinksRow time(const Exchange& exchange) {
    const auto sent_before = sent_bytes();
    exchange.call();
    const int64_t sent = sent_bytes() - sent_before;
    const double once_s = seconds_of(exchange, 1);
    int32_t num_calls = static_cast<int32_t>(std::clamp(flags_.min_time_s / std::max(once_s, 1e-7), 1.0, 1e5));
    ranks_.broadcast(&num_calls, 1, Element::kI32, 0);
    std::vector<double> each_us;
    for (int i = 0; i < flags_.num_repetitions; ++i) {
      each_us.push_back(seconds_of(exchange, num_calls) / num_calls * 1e6);
    }
    std::ranges::sort(each_us);
    const auto at = [&](double share) {
      return each_us[static_cast<size_t>(share * static_cast<double>(each_us.size() - 1))];
    };
    return {.collective = exchange.name,
            .num_bytes = exchange.num_bytes,
            .count = exchange.count,
            .type = exchange.type,
            .sent_bytes = sent,
            .num_tokens = exchange.num_tokens,
            .time_us = at(0.5),
            .time_us_p10 = at(0.1),
            .time_us_p90 = at(0.9),
            .bus_factor = exchange.bus_factor};
  }

 private:
  double seconds_of(const Exchange& exchange, int num_calls) {
    ranks_.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < num_calls; ++i) {
      exchange.call();
    }
    ranks_.barrier();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  [[nodiscard]] int64_t sent_bytes() const {
    int64_t sum = 0;
    for (const auto& [collective, num_bytes] : ranks_.sent_bytes()) {
      sum += num_bytes;
    }
    return sum;
  }

  Communicator& ranks_;
  const LinksFlags& flags_;
};

bool is_wanted(const LinksFlags& flags, const std::string& collective) {
  return flags.collectives.empty() || std::ranges::find(flags.collectives, collective) != flags.collectives.end();
}

std::vector<LinksRow> time_collectives(Communicator& ranks, const LinksFlags& flags) {
  const int n = ranks.size();
  const double share = static_cast<double>(n - 1) / n;
  std::vector<float> from(static_cast<size_t>(flags.max_bytes) / sizeof(float) + static_cast<size_t>(n), 1.0f);
  std::vector<float> to(from.size());
  Clocked clocked(ranks, flags);
  std::vector<LinksRow> rows;
  for (int64_t num_bytes = flags.min_bytes; num_bytes <= flags.max_bytes; num_bytes *= 4) {
    const int64_t whole = num_bytes / int64_t{sizeof(float)};
    const int64_t part = std::max<int64_t>(1, whole / n);  // of each rank, where they have parts of the whole
    const int64_t parts_bytes = part * n * int64_t{sizeof(float)};
    const std::vector<int64_t> parts(static_cast<size_t>(n), part);
    const std::vector<Exchange> exchanges{
        {"all_reduce",
         "f32",
         num_bytes,
         whole,
         0,
         2 * share,
         [&] { ranks.all_reduce(from.data(), to.data(), whole, Element::kF32); }},
        {"all_gather",
         "f32",
         parts_bytes,
         part,
         0,
         share,
         [&] { ranks.all_gather(from.data(), to.data(), part, Element::kF32); }},
        {"reduce_scatter",
         "f32",
         parts_bytes,
         part,
         0,
         share,
         [&] { ranks.reduce_scatter(from.data(), to.data(), part, Element::kF32); }},
        {"all_to_all",
         "f32",
         parts_bytes,
         part,
         0,
         share,
         [&] { ranks.all_to_all(from.data(), parts, to.data(), parts, Element::kF32); }},
        {"broadcast", "f32", num_bytes, whole, 0, 1, [&] { ranks.broadcast(from.data(), whole, Element::kF32, 0); }},
        {"send", "f32", num_bytes, whole, 0, 1, [&] {
           if (ranks.rank() == 0) {
             ranks.send(from.data(), whole, Element::kF32, n - 1);
           } else if (ranks.rank() == n - 1) {
             ranks.receive(to.data(), whole, Element::kF32, 0);
           }
         }}};
    for (const Exchange& exchange : exchanges) {
      if (is_wanted(flags, exchange.name) && (n > 1 || exchange.name != "send")) {
        rows.push_back(clocked.time(exchange));
      }
    }
  }
  return rows;
}

// DeepSeek-V3's experts over the ranks: FP8 tokens with their scales out, BF16 outputs back; each token chooses 8 of 256 at random.
std::vector<LinksRow> time_experts(Communicator& ranks, const LinksFlags& flags) {
  constexpr int64_t kExperts = 256;
  constexpr int kChosen = 8;
  constexpr int64_t kHidden = 7168;
  std::vector<LinksRow> rows;
  if ((!is_wanted(flags, "dispatch") && !is_wanted(flags, "combine")) || ranks.size() > kExperts) {
    return rows;
  }
  Clocked clocked(ranks, flags);
  for (const int64_t tokens : flags.tokens) {
    gpu::comm::ExchangeFormat format{.k = kChosen,
                                     .row_bytes = kHidden,
                                     .num_scales = kHidden / 128,
                                     .output_bytes = 2 * kHidden,
                                     .capacity = tokens * ranks.size()};
    for (int64_t rank = 0; rank <= ranks.size(); ++rank) {
      format.first_expert.push_back(rank * kExperts / ranks.size());
    }
    gpu::comm::TokenExchange exchange(ranks, format);
    std::mt19937 random(static_cast<unsigned>(ranks.rank()));
    std::vector<int32_t> ids;
    for (int64_t token = 0; token < tokens; ++token) {
      std::vector<int32_t> all(kExperts);
      std::iota(all.begin(), all.end(), 0);
      std::ranges::shuffle(all, random);
      ids.insert(ids.end(), all.begin(), all.begin() + kChosen);
    }
    const std::vector<std::byte> codes(static_cast<size_t>(tokens * kHidden));
    const std::vector<float> scales(static_cast<size_t>(tokens * format.num_scales));
    std::vector<std::byte> received(static_cast<size_t>(format.capacity * kHidden));
    std::vector<float> received_scales(static_cast<size_t>(format.capacity * format.num_scales));
    std::vector<int32_t> experts(static_cast<size_t>(format.capacity * kChosen));
    std::vector<std::byte> outputs(static_cast<size_t>(format.capacity * 2 * kHidden));
    std::vector<int32_t> row_of_slot(experts.size());
    std::vector<std::byte> returned(static_cast<size_t>(tokens * kChosen * 2 * kHidden));
    for (size_t slot = 0; slot < row_of_slot.size(); ++slot) {
      row_of_slot[slot] = static_cast<int32_t>(slot) / kChosen;
    }
    const auto dispatch = [&] {
      exchange.dispatch({codes.data(), scales.data(), tokens, ids.data(), tokens},
                        {received.data(), received_scales.data(), experts.data()});
    };
    const auto add = [&](const char* name, const char* type, int64_t num_bytes, const std::function<void()>& call) {
      if (is_wanted(flags, name)) {
        rows.push_back(clocked.time({name, type, num_bytes, tokens * kChosen, tokens, 1, call}));
      }
    };
    dispatch();
    add("dispatch", "e4m3", tokens * kChosen * (kHidden + 4 * format.num_scales), dispatch);
    add("combine", "bf16", tokens * kChosen * 2 * kHidden, [&] {
      exchange.give_back(outputs.data(), row_of_slot.data(), returned.data());
    });
  }
  return rows;
}

double gb_per_s(const LinksRow& row) {
  return static_cast<double>(row.num_bytes) / row.time_us / 1e3;
}

model::OpRecord record_of(const LinksRow& row, const LinksFlags& flags, int num_ranks) {
  return {.op = fmt::format("links.{}.{}", flags.comm, row.collective),
          .kind = row.collective,
          .phase = "bench",
          .tokens = row.num_tokens,
          .batch = num_ranks,
          .dtype = row.type,
          .activation_bytes = row.num_bytes,
          .wire_bytes = row.sent_bytes,
          .time_us = row.time_us,
          .time_us_p10 = row.time_us_p10,
          .time_us_p90 = row.time_us_p90,
          .repetitions = flags.num_repetitions};
}

void print(const std::vector<LinksRow>& rows, const LinksFlags& flags, int num_ranks) {
  if (flags.json) {
    nlohmann::ordered_json out{
        {"cpu", cpu_name()}, {"comm", flags.comm}, {"ranks", num_ranks}, {"rows", nlohmann::ordered_json::array()}};
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
             cpu_name(),
             num_ranks,
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

void run_rank(Communicator& ranks, const LinksFlags& flags) {
  auto rows = time_collectives(ranks, flags);
  const auto more = time_experts(ranks, flags);
  rows.insert(rows.end(), more.begin(), more.end());
  if (ranks.rank() != 0) {
    return;
  }
  if (!flags.out.empty()) {
    std::vector<model::OpRecord> records;
    for (const LinksRow& row : rows) {
      records.push_back(record_of(row, flags, ranks.size()));
    }
    write_bench_records(flags.out, std::move(records), ranks.size());
  }
  print(rows, flags, ranks.size());
}

int run_links(const LinksFlags& flags) {
  if (flags.min_bytes > flags.max_bytes) {
    model::throw_input_error("--min-bytes {}: more than --max-bytes {}", flags.min_bytes, flags.max_bytes);
  }
  const auto say = [](int rank, const std::string& what) { fmt::print(stderr, "rank {}: {}\n", rank, what); };
  const auto body = [&](Communicator& ranks) { run_rank(ranks, flags); };
  if (flags.comm == "mpi") {
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
  app.add_option("--comm", flags->comm, "threads of this process, or mpi (start with mpirun)")
      ->check(CLI::IsMember({"threads", "mpi"}))
      ->capture_default_str();
  app.add_option("--ranks", flags->num_ranks, "threads; with mpi, mpirun says how many")
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
      "\nTimes are of this machine's memory, not of NVLink or a network. Columns as nccl-tests has them.\n"
      "\nExamples:\n"
      "  $ dsv3-bench links --ranks 8 --collective all_reduce,all_to_all\n"
      "  $ mpirun -np 4 dsv3-bench links --comm mpi --out links.csv\n");
  return [flags] { return run_links(*flags); };
}

}  // namespace tools
