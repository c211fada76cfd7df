#include "tools/infer/rank_run.hpp"

#include <fmt/core.h>

#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <type_traits>

#include "gpu/comm/mpi.hpp"
#include "gpu/emulation/peer_group.hpp"
#include "tools/device/open.hpp"

namespace tools {
namespace {

using nlohmann::json;

// What the first rank of a data-parallel group has to tell.
json report_of(const DeviceResult& result,
               const std::vector<size_t>& numbers,
               const std::vector<std::vector<reference::GeneratedToken>>& tokens) {
  json requests = json::array();
  for (size_t r = 0; r < numbers.size(); ++r) {
    json list = json::array();
    for (const reference::GeneratedToken& token : tokens[r]) {
      list.push_back({{"id", token.id},
                      {"draft", token.draft ? json(*token.draft) : json(nullptr)},
                      {"logprob", token.logprob},
                      {"top", token.top}});
    }
    requests.push_back({{"request", numbers[r]},
                        {"stopped", result.reasons[r] == reference::FinishReason::kStop},
                        {"tokens", std::move(list)}});
  }
  const reference::GenerationStats& stats = result.stats;
  return {{"requests", std::move(requests)},
          {"prompt_tokens", stats.num_prompt_tokens},
          {"new_tokens", stats.num_new_tokens},
          {"drafted", stats.num_drafted},
          {"accepted", stats.num_accepted}};
}

void add(DeviceResult& total, const json& report, const reference::Generator::OnToken& on_token) {
  reference::GenerationStats& stats = total.stats;
  stats.num_prompt_tokens += report["prompt_tokens"].get<int64_t>();
  stats.num_new_tokens += report["new_tokens"].get<int64_t>();
  const auto add_counts = [](std::vector<int64_t>& counts, const json& others) {
    counts.resize(others.size());
    for (size_t i = 0; i < others.size(); ++i) {
      counts[i] += others[i].get<int64_t>();
    }
  };
  add_counts(stats.num_drafted, report["drafted"]);
  add_counts(stats.num_accepted, report["accepted"]);
  for (const json& request : report["requests"]) {
    const auto number = request["request"].get<size_t>();
    total.reasons[number] =
        request["stopped"].get<bool>() ? reference::FinishReason::kStop : reference::FinishReason::kLength;
    for (const json& token : request["tokens"]) {
      const json& draft = token["draft"];
      on_token(number,
               {.id = token["id"].get<int32_t>(),
                .draft = draft.is_null() ? std::nullopt : std::optional(draft.get<int32_t>()),
                .logprob = token["logprob"].get<double>(),
                .top = token["top"].get<std::vector<std::pair<int32_t, double>>>()});
    }
  }
}

// The texts of all ranks, at the first; empty elsewhere.
std::vector<std::string> gather_at_first(gpu::comm::Communicator& world, const std::string& text) {
  using gpu::comm::Element;
  const auto num_ranks = static_cast<size_t>(world.size());
  const auto len = static_cast<int32_t>(text.size());
  std::vector<int32_t> lens(num_ranks);
  world.all_gather(&len, lens.data(), 1, Element::kI32);
  std::vector<int64_t> num_sent(num_ranks);
  std::vector<int64_t> num_received(num_ranks);
  num_sent[0] = len;
  if (world.rank() == 0) {
    num_received.assign(lens.begin(), lens.end());
  }
  std::string all(static_cast<size_t>(std::accumulate(num_received.begin(), num_received.end(), int64_t{0})), '\0');
  world.all_to_all(text.data(), num_sent, all.data(), num_received, Element::kByte);
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const int64_t count : num_received) {
    texts.push_back(all.substr(begin, static_cast<size_t>(count)));
    begin += static_cast<size_t>(count);
  }
  return texts;
}

// What every rank saw of where tokens go, put together at the first. Collective.
void gather_routing(gpu::comm::Communicator& world, const RoutingTrace& own, RoutingTrace& all) {
  static_assert(std::is_trivially_copyable_v<RoutedChoice>);
  const auto& choices = own.choices();
  const auto texts = gather_at_first(
      world, std::string(reinterpret_cast<const char*>(choices.data()), choices.size() * sizeof(RoutedChoice)));
  if (world.rank() != 0) {
    return;  // `all` may be the same for every rank
  }
  for (const std::string& text : texts) {
    std::vector<RoutedChoice> others(text.size() / sizeof(RoutedChoice));
    std::memcpy(others.data(), text.data(), text.size());
    all.merge(others);
  }
}

// The watchers of one rank, those among RankTraces that were asked for.
struct Watchers {
  std::optional<RoutingTrace> routing;
  std::optional<DeviceTrace> times;
};

class RankRun {
 public:
  RankRun(const InferFlags& flags,
          const model::ParallelLayout& layout,
          const model::WeightSource& weights,
          const std::vector<reference::Request>& requests,
          const RankTraces& traces,
          Peers peers)
      : flags_(flags),
        plan_(model::parallel_plan(weights.config(), layout, expert_slots_of(flags.layout, weights.config(), layout))),
        weights_(weights),
        requests_(requests),
        traces_(traces),
        peers_(std::move(peers)) {}

  // Returns the result of all ranks on the first one.
  std::optional<DeviceResult> run(gpu::comm::Communicator& world,
                                  const std::function<reference::Generator::OnToken()>& listen,
                                  const reference::Generator::OnToken& on_token) {
    const model::RankPlace at = plan_.place(world.rank());
    const bool streams = world.rank() == 0 && plan_.layout.dp == 1;
    const auto follow = streams ? on_token : listen();
    std::vector<reference::Request> own;
    std::vector<size_t> numbers;  // of each among all
    for (auto r = static_cast<size_t>(at.dp_rank); r < requests_.size(); r += static_cast<size_t>(plan_.layout.dp)) {
      own.push_back(requests_[r]);
      numbers.push_back(r);
    }
    std::vector<std::vector<reference::GeneratedToken>> tokens(own.size());
    Watchers watchers = this->watchers();
    const DeviceResult result = generate(
        world,
        own,
        [&](size_t request, const gpu::NewToken& token) {
          tokens[request].push_back(token_of(token, flags_.num_logprobs));
          return follow(numbers[request], tokens[request].back());
        },
        numbers,
        watchers);
    gather(world, watchers);
    if (plan_.layout.dp == 1) {
      return world.rank() == 0 ? std::optional(result) : std::nullopt;
    }
    const bool reports = at.stage == 0 && at.tp_rank == 0;
    const auto texts = gather_at_first(world, reports ? report_of(result, numbers, tokens).dump() : std::string());
    if (world.rank() != 0) {
      return std::nullopt;
    }
    DeviceResult total{.reasons = std::vector<reference::FinishReason>(requests_.size()),
                       .stats = {.prefill_s = result.stats.prefill_s, .decode_s = result.stats.decode_s}};
    for (const std::string& text : texts) {
      if (!text.empty()) {
        add(total, json::parse(text), on_token);
      }
    }
    return total;
  }

 private:
  // All ranks have the same watchers, since a step that is watched is not cut into micro-batches.
  [[nodiscard]] Watchers watchers() const {
    Watchers watchers;
    if (traces_.routing != nullptr) {
      watchers.routing.emplace(*traces_.routing);
    }
    if (traces_.times != nullptr) {
      watchers.times.emplace(*traces_.times);
    }
    return watchers;
  }

  // Ranks that share their tokens route them alike, and one of them tells; sequence-parallel ones route a share each.
  void gather(gpu::comm::Communicator& world, const Watchers& watchers) {
    if (traces_.routing != nullptr) {
      const bool tells = plan_.place(world.rank()).tp_rank == 0 || plan_.layout.sequence_parallel;
      gather_routing(world, tells ? *watchers.routing : RoutingTrace({}, {}), *traces_.routing);
    }
    if (traces_.times != nullptr) {
      const auto packed = gather_at_first(world, watchers.times->pack());
      if (world.rank() == 0) {
        traces_.times->unpack_ranks(packed);
      }
    }
  }

  DeviceResult generate(gpu::comm::Communicator& world,
                        const std::vector<reference::Request>& own,
                        const gpu::Scheduler::OnToken& on_token,
                        const std::vector<size_t>& numbers,
                        Watchers& watchers) {
    const auto scheduling = scheduling_of(flags_);
    auto options = engine_options(flags_, weights_.config(), requests_, scheduling);
    options.layout = plan_.layout;
    options.num_micro_batches = flags_.num_micro_batches;
    options.expert_of_slot = plan_.expert_of_slot;
    options.world = &world;
    options.on_plan = [&](const std::string& text) {
      const std::lock_guard lock(mutex_);
      fmt::print(stderr, "{}: device memory: {}\n", rank_text(plan_, world.rank()), text);
    };
    if (world.rank() > 0) {
      options.on_progress = {};
    }
    auto device = open_rank_device({.device = flags_.device, .fp16 = is_fp16(flags_)}, world, peers_);
    options.links = device.links.get();
    options.exchanges_by_kernels = peers_ != nullptr || device.links != nullptr;
    gpu::Engine engine(weights_, std::move(device.backend), options);
    clear_progress();
    gpu::Scheduler scheduler(engine, scheduling);
    const auto reasons =
        scheduler.run(device_requests(own),
                      on_token,
                      device_watch(numbers,
                                   watchers.routing ? &*watchers.routing : nullptr,
                                   watchers.times ? &*watchers.times : nullptr,
                                   [&engine](int64_t num_rows) { return engine.shard().stream_rows(num_rows); }));
    return result_of(scheduler.stats(), reasons);
  }

  const InferFlags& flags_;
  model::ParallelPlan plan_;
  const model::WeightSource& weights_;
  const std::vector<reference::Request>& requests_;
  const RankTraces& traces_;
  Peers peers_;       // null: processes; those of emulated devices exchange tokens by way of the host
  std::mutex mutex_;  // of stderr
};

}  // namespace

namespace {

bool are_processes(const InferFlags& flags) {
  return flags.comm == "mpi" || (flags.comm == "nccl" && gpu::comm::started_by_mpirun());
}

}  // namespace

bool has_ranks(const InferFlags& flags, const model::ModelConfig& config) {
  if (flags.comm == "nccl" && flags.device != "cuda") {
    model::throw_input_error("--comm nccl: connects GPUs, not --device {}: expected --device cuda", flags.device);
  }
  if (!are_processes(flags) && layout_of(flags.layout, config).num_ranks() == 1) {
    return false;
  }
  if (flags.device == "cuda") {  // said once, not by every rank
    require_cuda();
  }
  return true;
}

std::optional<DeviceResult> run_on_ranks(const InferFlags& flags,
                                         const model::WeightSource& weights,
                                         const std::vector<reference::Request>& requests,
                                         const RankTraces& traces,
                                         const std::function<reference::Generator::OnToken()>& listen,
                                         const reference::Generator::OnToken& on_token) {
  std::optional<DeviceResult> result;
  const auto say = [](int rank, const std::string& what) { fmt::print(stderr, "rank {}: {}\n", rank, what); };
  const auto run_rank = [&](RankRun& run, gpu::comm::Communicator& world) {
    if (auto of_rank = run.run(world, listen, on_token)) {
      result = std::move(of_rank);
    }
  };
  if (are_processes(flags)) {
    gpu::comm::run_mpi_rank(
        {},
        [&](gpu::comm::Communicator& world) {
          RankRun run(
              flags, layout_of(flags.layout, weights.config(), world.size()), weights, requests, traces, nullptr);
          run_rank(run, world);
        },
        say);
    return result;
  }
  const model::ParallelLayout layout = layout_of(flags.layout, weights.config());
  const auto num_ranks = static_cast<int>(layout.num_ranks());
  const auto peers = std::make_shared<gpu::emulation::PeerGroup>(num_ranks);
  RankRun run(flags, layout, weights, requests, traces, peers);
  gpu::comm::run_thread_ranks(
      num_ranks,
      {},
      [&](gpu::comm::Communicator& world) { run_rank(run, world); },
      [&](int rank, const std::string& what) {
        peers->fail(what);
        say(rank, what);
      });
  return result;
}

}  // namespace tools
