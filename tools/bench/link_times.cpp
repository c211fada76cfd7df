#include "tools/bench/link_times.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "gpu/comm/token_exchange.hpp"

namespace tools {
namespace {

using gpu::comm::Communicator;
using gpu::comm::Element;

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
  Clocked(const LinkRank& rank, const LinksFlags& flags) : rank_(rank), flags_(flags) {}

  LinksRow time(const Exchange& exchange) {
    const auto sent_before = sent_bytes();
    exchange.call();
    const int64_t sent = sent_bytes() - sent_before;
    const double once_s = seconds_of(exchange, 1);
    int32_t num_calls = static_cast<int32_t>(std::clamp(flags_.min_time_s / std::max(once_s, 1e-7), 1.0, 1e5));
    rank_.host.broadcast(&num_calls, 1, Element::kI32, 0);
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
    rank_.host.barrier();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < num_calls; ++i) {
      exchange.call();
    }
    rank_.finish();
    rank_.host.barrier();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  [[nodiscard]] int64_t sent_bytes() const {
    int64_t sum = 0;
    for (const auto& [collective, num_bytes] : rank_.links.sent_bytes()) {
      sum += num_bytes;
    }
    return sum;
  }

  const LinkRank& rank_;
  const LinksFlags& flags_;
};

bool is_wanted(const LinksFlags& flags, const std::string& collective) {
  return flags.collectives.empty() || std::ranges::find(flags.collectives, collective) != flags.collectives.end();
}

}  // namespace

std::vector<LinksRow> time_collectives(const LinkRank& rank, const LinksFlags& flags) {
  Communicator& ranks = rank.links;
  const int n = ranks.size();
  const double share = static_cast<double>(n - 1) / n;
  const int64_t buffer_bytes = flags.max_bytes + n * int64_t{sizeof(float)};
  std::byte* const from = rank.allocate(buffer_bytes);
  std::byte* const to = rank.allocate(buffer_bytes);
  Clocked clocked(rank, flags);
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
         [&] { ranks.all_reduce(from, to, whole, Element::kF32); }},
        {"all_gather", "f32", parts_bytes, part, 0, share, [&] { ranks.all_gather(from, to, part, Element::kF32); }},
        {"reduce_scatter",
         "f32",
         parts_bytes,
         part,
         0,
         share,
         [&] { ranks.reduce_scatter(from, to, part, Element::kF32); }},
        {"all_to_all",
         "f32",
         parts_bytes,
         part,
         0,
         share,
         [&] { ranks.all_to_all(from, parts, to, parts, Element::kF32); }},
        {"broadcast", "f32", num_bytes, whole, 0, 1, [&] { ranks.broadcast(from, whole, Element::kF32, 0); }},
        {"send", "f32", num_bytes, whole, 0, 1, [&] {
           if (ranks.rank() == 0) {
             ranks.send(from, whole, Element::kF32, n - 1);
           } else if (ranks.rank() == n - 1) {
             ranks.receive(to, whole, Element::kF32, 0);
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
std::vector<LinksRow> time_experts(const LinkRank& rank, const LinksFlags& flags) {
  Communicator& ranks = rank.links;
  constexpr int64_t kExperts = 256;
  constexpr int kChosen = 8;
  constexpr int64_t kHidden = 7168;
  std::vector<LinksRow> rows;
  const bool is_asked_for = is_wanted(flags, "dispatch") || is_wanted(flags, "combine");
  if (!is_asked_for || !rank.gpu.empty() || ranks.size() > kExperts) {
    return rows;
  }
  Clocked clocked(rank, flags);
  for (const int64_t tokens : flags.tokens) {
    gpu::comm::ExchangeFormat format{.k = kChosen,
                                     .row_bytes = kHidden,
                                     .num_scales = kHidden / 128,
                                     .output_bytes = 2 * kHidden,
                                     .capacity = tokens * ranks.size()};
    const auto placement = gpu::contiguous_placement(kExperts, ranks.size());
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
                        placement,
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

}  // namespace tools
