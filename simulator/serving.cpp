#include "simulator/serving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "model/check.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

constexpr double kUsPerMs = 1e3;
constexpr double kMsPerS = 1e3;
constexpr double kGb = 1e9;

// A 90 % interval is a factor exp(+-1.645 s) around the estimate. s is the engine's log_spread, from rows left out of its fit; what
// follows is added to it in squares where it applies. These are judgement, not measurement: no row of such deployments is here.
constexpr double kNormal90 = 1.645;
constexpr double kSpreadOtherStack = 0.10;
constexpr double kSpreadBorrowedOps = 0.08;
constexpr double kSpreadNetworkTp = 0.15;
constexpr double kSpreadWideEp = 0.10;
constexpr double kSpreadPrefillBound = 0.15;

double real(int64_t value) {
  return static_cast<double>(value);
}

// One prompt in chunks, the first behind what the cache has.
StepCost prompt_cost(const StepModel& model, const Workload& work, double tokens) {
  const double cached = work.prefix_hit * tokens;
  const double chunk = work.prefill_chunk > 0 ? work.prefill_chunk : tokens;
  std::vector<StepCost> chunks;
  for (double done = cached; done < tokens; done += chunk) {
    chunks.push_back(model.prefill(
        {.num_cached = done, .new_tokens = std::min(chunk, tokens - done), .is_alone = work.prefill_in_turn}));
  }
  return weighted_sum(chunks, 1);
}

// The mean over the workload's prompts.
StepCost mean_prompt(const StepModel& model, const Workload& work) {
  std::vector<StepCost> prompts;
  for (const double part : work.lengths.prompt_parts) {
    prompts.push_back(prompt_cost(model, work, work.prompt_tokens * part));
  }
  return weighted_sum(prompts, 1 / real(std::ssize(prompts)));
}

// Everything about a point that the search for a steady state needs.
struct Load {
  double sequences = 0;  // of a DP rank
  double step_ms = 0;    // of a token: a step over the tokens that it yields
  double stall_ms = 0;
};

// The smallest number that at least `share` of a Poisson distribution does not exceed; beyond a mean of 500 that of a normal one.
double poisson_quantile(double mean, double share) {
  constexpr double kManyMean = 500;
  constexpr double kNormal99 = 2.326;
  if (mean > kManyMean) {
    return mean + (share > 0.5 ? kNormal99 : 0) * std::sqrt(mean);
  }
  double count = 0;
  double chance = std::exp(-mean);
  for (double sum = chance; sum < share; sum += chance) {
    count += 1;
    chance *= mean / count;
  }
  return count;
}

void refuse_if_too_large(const Deployment& deployment, const MemoryBudget& budget) {
  if (budget.max_sequences >= 1) {
    return;
  }
  std::string fitting;
  for (int64_t ranks = 1; ranks <= 1024 && fitting.empty(); ranks *= 2) {
    RankLayout rank = deployment.decode.rank;
    rank.layout = {.tp = std::min<int64_t>(ranks, 8), .ep = ranks, .dp = std::max<int64_t>(1, ranks / 8)};
    rank.redundant_experts = 0;
    if (ranks <= deployment.config.n_routed_experts &&
        memory_budget(deployment.config, deployment.hardware, rank, {.tokens_per_sequence = 4096}).max_sequences >= 1) {
      fitting = fmt::format("; {} GPUs would hold it ({})", ranks, layout_text(rank.layout));
    }
  }
  model::throw_input_error(
      "layout {} on {}: weights and buffers take {:.1f} GB a GPU and a sequence {:.2f} GB, of {:.1f} GB usable{}",
      layout_text(deployment.decode.rank.layout),
      deployment.hardware.name,
      budget.fixed_bytes / kGb,
      budget.cache_bytes_per_sequence / kGb,
      budget.usable_bytes / kGb,
      fitting);
}

}  // namespace

// While it decodes, a request with a long answer is seen more often than one with a short answer.
double Workload::mean_kv_len() const {
  return prompt_tokens * lengths.decoding_prompt + answer_tokens / 2 * (1 + lengths.answer_cv * lengths.answer_cv);
}

double tokens_per_step(const std::vector<double>& acceptance) {
  double tokens = 1;
  double kept = 1;
  for (const double chance : acceptance) {
    kept *= chance;
    tokens += kept;
  }
  return tokens;
}

Serving serve(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves) {
  const Workload& work = deployment.workload;
  const auto& layout = deployment.decode.rank.layout;
  const StepModel decode(
      deployment.config, deployment.hardware, fits, deployment.engine, deployment.decode.rank, curves);
  const double ranks = real(layout.dp * deployment.decode.workers);
  Serving serving;
  serving.asked_sequences = work.concurrency / ranks;
  const MemoryRequest request{.sequences = serving.asked_sequences,
                              .tokens_per_sequence = work.prompt_tokens + work.answer_tokens,
                              .prefill_chunk = work.prefill_chunk > 0 ? work.prefill_chunk : work.new_prompt_tokens(),
                              .memory_frac = deployment.memory_frac};
  serving.memory = memory_budget(deployment.config, deployment.hardware, deployment.decode.rank, request);
  refuse_if_too_large(deployment, serving.memory);
  const double room = std::min(serving.asked_sequences, serving.memory.max_sequences);
  serving.limit = room < serving.asked_sequences ? Limit::kMemory : Limit::kNone;

  const Pool& prompts = deployment.prefill ? *deployment.prefill : deployment.decode;
  const StepModel prefill(deployment.config, deployment.hardware, fits, deployment.engine, prompts.rank, curves);
  serving.prompt = mean_prompt(prefill, work);
  const double prompt_ms = serving.prompt.total_us / kUsPerMs;
  const double yield = tokens_per_step(work.acceptance);
  const double kv_len = work.mean_kv_len();
  // While a request decodes, each of the others on its rank is replaced once; prompts that come in turn stop the other ranks as well.
  const auto prompts_met = [&](double sequences) {
    return std::max(0.0, sequences * (work.prefill_in_turn ? real(layout.dp) : 1) - 1);
  };
  // Ranks that prefill at the same time, of all workers.
  const double prefill_lanes = real(prompts.workers) * (work.prefill_in_turn ? 1 : real(prompts.rank.layout.dp));
  const auto at = [&](double sequences) {
    // Stages work on different parts of the batch at once; a step of all of them is what a token waits for.
    const StepCost cost = decode.decode({.sequences = sequences / real(layout.pp), .kv_len = kv_len});
    Load load{.sequences = sequences, .step_ms = cost.total_us / kUsPerMs / yield};
    if (!deployment.prefill && !deployment.decode_only) {
      load.stall_ms = prompts_met(sequences) * prompt_ms / work.answer_tokens;
    }
    return load;
  };
  Load load = at(room);
  // Requests arrive no faster than prefill lets them through: its own pool, or the chunks between decode steps.
  const bool is_chunked = !deployment.prefill && !deployment.decode_only && work.prefill_chunk > 0;
  const double num_chunks =
      is_chunked ? work.new_prompt_tokens() / std::min(work.prefill_chunk, work.new_prompt_tokens()) : 0;
  const auto most_per_ms = [&](const Load& point) {
    const double between_ms = num_chunks * work.steps_per_chunk * point.step_ms * yield;
    return prefill_lanes / (prompt_ms + between_ms);
  };
  if (deployment.prefill || is_chunked) {
    const auto fed = [&](const Load& point) {
      return most_per_ms(point) * work.answer_tokens * (point.step_ms + point.stall_ms) / ranks;
    };
    if (fed(load) < room) {
      serving.limit = Limit::kPrefill;
      double low = 0;
      double high = room;
      constexpr int kHalvings = 40;
      for (int i = 0; i < kHalvings; ++i) {
        const double middle = (low + high) / 2;
        (fed(at(middle)) < middle ? high : low) = middle;
      }
      load = at(high);
    }
  }
  serving.decode_sequences = load.sequences;
  serving.step = decode.decode({.sequences = load.sequences / real(layout.pp), .kv_len = kv_len});
  serving.step_ms = load.step_ms;
  serving.stall_ms = load.stall_ms;
  serving.tpot_ms = load.step_ms + load.stall_ms;
  const double served_per_ms = most_per_ms(load);
  const double service_ms = prefill_lanes / served_per_ms;
  // On workers that also prefill a request keeps its place while its own prompt is computed; where prefill is short, requests that wait
  // for it come on top of those at work.
  const bool is_own_prompt_here = !deployment.prefill && !deployment.decode_only && serving.limit != Limit::kPrefill;
  const double place_ms = work.answer_tokens * serving.tpot_ms + (is_own_prompt_here ? service_ms : 0);
  const double per_ms = load.sequences * ranks / place_ms;
  // Mean wait of a queue with Poisson arrivals and equal services, at most for all other requests of the lane, and of those whom
  // memory or prefill keeps out.
  const double busy = deployment.decode_only ? 0 : std::min(0.95, per_ms / served_per_ms);
  const double kept_out = std::max(0.0, serving.asked_sequences - load.sequences) * ranks;
  const double varied = 1 + work.lengths.prompt_cv * work.lengths.prompt_cv;
  const double others = std::max(0.0, work.concurrency / prefill_lanes - 1);
  const double queue_ms = service_ms * std::min(others, varied * busy / (2 * (1 - busy)));
  serving.ttft_ms = service_ms + queue_ms + serving.step_ms + kept_out / per_ms;
  serving.requests_per_s = per_ms * kMsPerS;
  serving.prompt_tokens_per_s_per_gpu =
      prefill_lanes * work.new_prompt_tokens() / prompt_ms * kMsPerS / real(prompts.num_gpus());
  serving.tokens_per_s_per_gpu = serving.requests_per_s * work.answer_tokens / real(deployment.num_gpus());
  serving.tokens_per_s_per_user = kMsPerS / serving.tpot_ms;
  // A request meets a Poisson number of prefills.
  const double prefills_met = deployment.prefill || deployment.decode_only ? 0 : prompts_met(load.sequences);
  const auto tpot_at = [&](double share) {
    return load.step_ms + poisson_quantile(prefills_met, share) * prompt_ms / work.answer_tokens;
  };
  serving.tpot_p50_ms = tpot_at(0.5);
  serving.tpot_p99_ms = tpot_at(0.99);

  double variance = deployment.engine.log_spread * deployment.engine.log_spread;
  const auto widen = [&](double spread, std::string why) {
    variance += spread * spread;
    serving.notes.push_back(std::move(why));
  };
  if (!is_measured_on(deployment.engine, deployment.hardware)) {
    widen(kSpreadOtherStack,
          fmt::format("constants of {} come from another GPU or engine, not from {}",
                      deployment.engine.name,
                      deployment.hardware.name));
  }
  std::set<std::string> borrowed;
  for (const ChosenFit& fit : fits) {
    if (fit.is_borrowed && fit.fit.family != OpFamily::kPrefillScores) {
      borrowed.insert(fit.measured_on);
    }
  }
  for (const std::string& gpu : borrowed) {
    widen(kSpreadBorrowedOps, fmt::format("kernels scaled from {}", gpu));
  }
  if (decode.tp_crosses_domains()) {
    widen(kSpreadNetworkTp, "all-reduce over the network is assumed, not measured");
  }
  if (layout.ep > layout.tp) {
    widen(kSpreadWideEp, "expert skew and waiting vary between data sets");
  }
  if (serving.stall_ms > serving.step_ms || serving.limit == Limit::kPrefill) {
    widen(kSpreadPrefillBound, "prefill decides, and its speed varies most between releases");
  }
  std::set<std::string> what_ifs;
  for (const ChosenFit& fit : fits) {
    if (!fit.what_if.empty()) {
      what_ifs.insert(fit.what_if);
    }
  }
  serving.notes.insert(serving.notes.end(), what_ifs.begin(), what_ifs.end());
  const double factor = std::exp(kNormal90 * std::sqrt(variance));
  serving.tpot_low_ms = serving.tpot_ms / factor;
  serving.tpot_high_ms = serving.tpot_ms * factor;
  if (serving.limit != Limit::kNone) {
    serving.notes.push_back(fmt::format("decode starves: {:.1f} of {:.1f} sequences a DP rank at work, {} is short",
                                        serving.decode_sequences,
                                        serving.asked_sequences,
                                        serving.limit == Limit::kMemory ? "cache memory" : "prefill"));
  }
  return serving;
}

StepSpread step_spread(const Deployment& deployment,
                       const std::vector<ChosenFit>& fits,
                       MoeCurves& curves,
                       const Serving& serving) {
  const RankLayout& rank = deployment.decode.rank;
  const StepModel decode(deployment.config, deployment.hardware, fits, deployment.engine, rank, curves);
  constexpr int64_t kSteps = 100;
  const auto sampled =
      decode.sampled_moe({.sequences = serving.decode_sequences / real(rank.layout.pp), .kv_len = 0}, kSteps);
  constexpr std::array kSampled{
      StepPart::kExpertsFixed, StepPart::kExperts, StepPart::kDispatch, StepPart::kCombine, StepPart::kWaiting};
  double mean_us = 0;
  for (const StepLeaf& leaf : serving.step.leaves) {
    mean_us += std::ranges::find(kSampled, leaf.part) != kSampled.end() ? leaf.total_us() : 0;
  }
  std::vector<double> steps_ms;
  for (const MoeLayerTime& moe : sampled) {
    const double moe_us = moe.total_us() * (rank.two_batch_overlap ? 2 : 1);
    steps_ms.push_back((serving.step.total_us + deployment.engine.stream_factor * (moe_us - mean_us)) / kUsPerMs);
  }
  if (steps_ms.empty()) {
    steps_ms.push_back(serving.step.total_us / kUsPerMs);
  }
  return {quantile(steps_ms, 0.5), quantile(steps_ms, 0.9), quantile(steps_ms, 0.99)};
}

}  // namespace simulator
