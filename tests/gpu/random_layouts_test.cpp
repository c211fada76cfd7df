// Random layouts, placements, batches and lengths: every token and every bit of its logits is that of one rank. The numbers of a case
// follow from the seed and its number alone. DSV3_NUM_CASES of them; four in a row have the same requests, which one rank runs once, and
// the same kind of device.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "gpu/emulation/peer_group.hpp"
#include "gpu/engine/scheduler.hpp"
#include "tools/common.hpp"

namespace tools {
namespace {

using model::ParallelLayout;

constexpr uint64_t kSeed = 20261201;
constexpr int64_t kMaxRanks = 12;
constexpr int64_t kMaxPromptLen = 9;
constexpr int64_t kMaxNewTokens = 3;
constexpr uint64_t kCasesOfRequests = 4;

// A model that is made once, not once for each rank of each case.
class KeptWeights : public model::WeightSource {
 public:
  explicit KeptWeights(const model::WeightSource& source) : source_(source) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return source_.config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    const std::lock_guard lock(mutex_);
    const auto found = tensors_.find(name);
    return found != tensors_.end() ? found->second : tensors_.emplace(name, source_.weight(name)).first->second;
  }
  [[nodiscard]] bool keeps_tensors() const override { return true; }

 private:
  const model::WeightSource& source_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, model::TensorView> tensors_;
};

struct RandomCase {
  ParallelLayout layout = {};
  model::ExpertSlots expert_of_slot = {};
  gpu::SchedulerOptions scheduling;
  int64_t num_micro_batches = 1;
  int64_t max_batch = 1;
  bool use_graphs = false;
  bool exchanges_by_kernels = false;

  [[nodiscard]] std::string text() const {
    return fmt::format("tp {} ep {} dp {} pp {}{}, {} slots, chunks of {}, {} drafts, {} micro-batches{}{}",
                       layout.tp,
                       layout.ep,
                       layout.dp,
                       layout.pp,
                       layout.sequence_parallel ? " sp" : "",
                       expert_of_slot.empty() ? 0 : expert_of_slot.back().size(),
                       scheduling.chunk_len,
                       scheduling.num_drafts,
                       num_micro_batches,
                       use_graphs ? ", graphs" : "",
                       exchanges_by_kernels ? ", exchange by kernels" : "");
  }
};

struct RandomRequests {
  bool has_wgmma = true;  // the device they meet: sums of one that has it are in another order
  std::vector<gpu::Request> all = {};
};

std::string text_of(const RandomRequests& requests) {
  std::vector<size_t> lens;
  for (const gpu::Request& request : requests.all) {
    lens.push_back(request.prompt.size());
  }
  return fmt::format("prompts of {}{}", fmt::join(lens, ", "), requests.has_wgmma ? "" : ", no wgmma");
}

class CaseMaker {
 public:
  CaseMaker(const model::ModelConfig& config, uint64_t seed) : config_(config), random_(seed) {}

  RandomCase make() {
    RandomCase result;
    result.layout = layout();
    if (result.layout.ep > 1 && result.layout.ep >= result.layout.tp && coin()) {
      result.expert_of_slot = slots(result.layout.ep);
    }
    result.scheduling = {.chunk_len = between(1, 16), .num_drafts = between(0, 2), .with_logits = true};
    result.num_micro_batches = result.layout.pp > 1 ? between(1, 3) : 1;
    result.max_batch = between(1, 4);
    result.use_graphs = coin();
    result.exchanges_by_kernels = coin();
    return result;
  }

  RandomRequests make_requests() {
    RandomRequests result{.has_wgmma = coin()};
    // From one request, which leaves data-parallel ranks without any, to more than run at once.
    const int64_t num_requests = coin() ? between(1, 2) : between(1, 6);
    const bool alike = between(0, 3) == 0;  // all tokens at all ranks to the same experts
    const auto token = static_cast<int32_t>(between(0, config_.vocab_size - 1));
    for (int64_t r = 0; r < num_requests; ++r) {
      gpu::Request request{.prompt = {token}, .max_new_tokens = between(1, kMaxNewTokens)};
      if (!alike) {
        request.prompt.resize(static_cast<size_t>(coin() ? 1 : between(1, kMaxPromptLen)));
        std::ranges::generate(request.prompt, [&] { return static_cast<int32_t>(between(0, config_.vocab_size - 1)); });
      }
      result.all.push_back(std::move(request));
    }
    return result;
  }

 private:
  // Both ends included; the same on every machine, as distributions of the standard library are not.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }

  ParallelLayout layout() {
    for (;;) {
      ParallelLayout found{.tp = int64_t{1} << between(0, 3),
                           .ep = between(1, config_.n_routed_experts),
                           .pp = between(1, config_.num_hidden_layers),
                           .dp = between(1, 8)};
      found.sequence_parallel = found.tp > 1 && coin();
      const bool fits = found.ep < found.tp ? found.tp % found.ep == 0
                                            : found.ep % found.tp == 0 && found.stage_len() % found.ep == 0;
      if (fits && found.num_ranks() > 1 && found.num_ranks() <= kMaxRanks) {
        return found;
      }
    }
  }

  // Every expert once, in any order, and copies of any in the slots that are left.
  model::ExpertSlots slots(int64_t ep) {
    const int64_t num_experts = config_.n_routed_experts;
    const int64_t slots_per_rank = (num_experts + ep - 1) / ep + between(0, 2);
    model::ExpertSlots result(static_cast<size_t>(config_.num_hidden_layers + config_.num_nextn_predict_layers));
    for (size_t layer = 0; layer < result.size(); ++layer) {
      if (!config_.is_moe_layer(static_cast<int64_t>(layer))) {
        continue;
      }
      auto& experts = result[layer];
      for (int64_t slot = 0; slot < ep * slots_per_rank; ++slot) {
        experts.push_back(slot < num_experts ? slot : between(0, num_experts - 1));
      }
      for (size_t last = experts.size() - 1; last > 0; --last) {
        std::swap(experts[last], experts[static_cast<size_t>(between(0, static_cast<int64_t>(last)))]);
      }
    }
    return result;
  }

  const model::ModelConfig& config_;
  std::mt19937_64 random_;
};

// Of each request its tokens, and their logits.
struct Generated {
  std::vector<int32_t> tokens = {};
  std::vector<float> logits = {};

  [[nodiscard]] bool same_bits(const Generated& other) const {
    return tokens == other.tokens && logits.size() == other.logits.size() &&
           std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

void generate_own(gpu::Engine& engine,
                  const RandomCase& job,
                  const std::vector<gpu::Request>& requests,
                  const std::vector<size_t>& numbers,
                  std::vector<Generated>* results) {
  std::vector<gpu::Request> own;
  for (const size_t number : numbers) {
    own.push_back(requests[number]);
  }
  gpu::Scheduler(engine, job.scheduling).run(own, [&](size_t request, const gpu::NewToken& token) {
    if (results != nullptr) {
      Generated& result = (*results)[numbers[request]];
      result.tokens.push_back(token.id);
      result.logits.insert(result.logits.end(), token.logits.begin(), token.logits.end());
    }
    return true;
  });
}

gpu::EngineOptions options_of(const model::ModelConfig& config, const RandomCase& job) {
  constexpr int64_t kMaxLen = kMaxPromptLen + kMaxNewTokens;
  return {.limits = gpu::Scheduler::limits_of(config, job.scheduling, job.max_batch, kMaxLen),
          .num_pages = job.max_batch,
          .layout = job.layout,
          .expert_of_slot = job.expert_of_slot,
          .exchanges_by_kernels = job.exchanges_by_kernels,
          .num_micro_batches = job.num_micro_batches,
          .use_graphs = job.use_graphs};
}

std::vector<Generated> generate_on_one_rank(const model::WeightSource& weights, const RandomRequests& requests) {
  const RandomCase job{.scheduling = {.chunk_len = 64, .with_logits = true}, .max_batch = 4};
  std::vector<Generated> results(requests.all.size());
  std::vector<size_t> all(requests.all.size());
  std::ranges::generate(all, [n = size_t{0}]() mutable { return n++; });
  gpu::Engine engine(weights, gpu::make_emulated_backend({}, requests.has_wgmma), options_of(weights.config(), job));
  generate_own(engine, job, requests.all, all, &results);
  return results;
}

// As every rank of the layout has it that holds the request.
std::vector<std::vector<Generated>> generate_on_ranks(const model::WeightSource& weights,
                                                      const RandomCase& job,
                                                      const RandomRequests& requests) {
  const auto num_ranks = static_cast<size_t>(job.layout.num_ranks());
  std::vector<std::vector<Generated>> results(num_ranks, std::vector<Generated>(requests.all.size()));
  const auto peers = std::make_shared<gpu::emulation::PeerGroup>(static_cast<int>(num_ranks));
  const auto run_rank = [&](gpu::comm::Communicator& world) {
    auto options = options_of(weights.config(), job);
    options.world = &world;
    gpu::Engine engine(weights, gpu::make_emulated_backend({.peers = peers}, requests.has_wgmma), options);
    const auto dp_rank = world.rank() % job.layout.stage_len() / job.layout.tp;
    std::vector<size_t> numbers;
    for (auto r = static_cast<size_t>(dp_rank); r < requests.all.size(); r += static_cast<size_t>(job.layout.dp)) {
      numbers.push_back(r);
    }
    generate_own(engine, job, requests.all, numbers, &results[static_cast<size_t>(world.rank())]);
  };
  gpu::comm::run_thread_ranks(
      static_cast<int>(num_ranks), {}, run_rank, [&](int, const std::string& what) { peers->fail(what); });
  return results;
}

TEST(RandomLayouts, HaveTheBitsOfOneRank) {
  const auto checkpoint = open_checkpoint("synthetic:par");
  const KeptWeights weights(*checkpoint.weights);
  RandomRequests requests;
  std::vector<Generated> expected;
  std::map<std::string, int> seen;
  for (uint64_t number = 0; number < DSV3_NUM_CASES && !HasFailure(); ++number) {
    if (number % kCasesOfRequests == 0) {
      requests = CaseMaker(weights.config(), kSeed - 1 - number).make_requests();
      expected = generate_on_one_rank(weights, requests);
    }
    const RandomCase job = CaseMaker(weights.config(), kSeed + number).make();
    SCOPED_TRACE(fmt::format("case {}: {}, {}", number, job.text(), text_of(requests)));
    const auto results = generate_on_ranks(weights, job, requests);
    for (size_t rank = 0; rank < results.size(); ++rank) {
      const auto dp_rank = rank % static_cast<size_t>(job.layout.stage_len()) / static_cast<size_t>(job.layout.tp);
      for (size_t r = dp_rank; r < requests.all.size(); r += static_cast<size_t>(job.layout.dp)) {
        EXPECT_TRUE(results[rank][r].same_bits(expected[r])) << "rank " << rank << ", request " << r;
      }
    }
    seen["cut experts"] += job.layout.expert_tp() > 1 ? 1 : 0;
    seen["copies"] += job.expert_of_slot.empty() ? 0 : 1;
    seen["sequence parallel"] += job.layout.sequence_parallel ? 1 : 0;
    seen["experts that do not divide"] += job.layout.ep > 1 && weights.config().n_routed_experts % job.layout.ep != 0;
    seen["ranks without requests"] += static_cast<int64_t>(requests.all.size()) < job.layout.dp ? 1 : 0;
    seen["one request"] += requests.all.size() == 1 ? 1 : 0;
    seen["exchange by kernels"] += job.exchanges_by_kernels && job.layout.ep > 1 && job.layout.expert_tp() == 1 ? 1 : 0;
  }
  for (const auto& [what, count] : seen) {
    EXPECT_TRUE(count > 0 || DSV3_NUM_CASES < 100) << what;
  }
}

}  // namespace
}  // namespace tools
