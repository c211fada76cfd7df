#include "tools/device/engine_dump.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "golden/recorder.hpp"
#include "gpu/emulation/peer_group.hpp"
#include "tools/device/row_owners.hpp"

namespace tools {
namespace {

std::string joined(const std::vector<int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

// The command that records the same cases for the engine.
std::string record_command(const golden::Manifest& manifest) {
  std::string what = "--cases PROMPTS.json";
  const auto& cases = manifest.cases;
  const bool is_chain = !cases.empty() && cases[0].sequences.size() == 1 && cases[0].after.empty() &&
                        std::all_of(cases.begin() + 1, cases.end(), [](const golden::Case& c) {
                          return !c.after.empty() && c.sequences.size() == 1 && c.sequences[0].size() == 1;
                        });
  if (is_chain) {
    what = "--prompt-ids " + joined(cases[0].sequences[0]);
    what += cases.size() > 1 ? fmt::format(" --decode {}", cases.size() - 1) : "";
  }
  return fmt::format("dsv3-golden record --checkpoint {} {} --profile v32 --out FILE", manifest.checkpoint, what);
}

// The tokens that row i of an MTP layer reads: token i + 1 + k of the case's only sequence.
std::vector<int32_t> mtp_tokens(const golden::Case& step, int64_t k) {
  std::vector<int32_t> tokens = step.sequences.at(0);
  const auto num_rows = static_cast<int64_t>(tokens.size());
  tokens.insert(tokens.end(), step.mtp_ids.begin(), step.mtp_ids.begin() + k + 1);
  return {tokens.begin() + k + 1, tokens.begin() + k + 1 + num_rows};
}

gpu::EngineOptions options_of(const std::vector<golden::Case>& cases) {
  gpu::EngineOptions options;
  gpu::StepLimits& limits = options.limits;
  for (const golden::Case& step : cases) {
    limits.max_rows = std::max(limits.max_rows, step.num_tokens());
    limits.max_sequences = std::max(limits.max_sequences, static_cast<int64_t>(step.sequences.size()));
    int64_t num_keys = 0;
    for (const auto& [num_cached, num_new] : golden::sequence_steps(cases, step)) {
      num_keys += num_cached + num_new;
      limits.max_len = std::max(limits.max_len, num_cached + num_new);
      options.num_pages += (num_cached + num_new + gpu::kPageRows - 1) / gpu::kPageRows;
    }
    limits.max_prefill_keys = std::max(limits.max_prefill_keys, num_keys);
  }
  limits.max_head_rows = limits.max_rows;
  // One split a sequence, whatever its length: the rule by which the verifier judges the sum (docs/gpu.md).
  limits.pages_per_split = static_cast<int>(std::max<int64_t>(limits.pages_per_split, limits.max_pages()));
  return options;
}

// The sequences of a step that one data-parallel rank has.
struct OwnSequences {
  size_t begin = 0;
  size_t end = 0;
};

OwnSequences share_of(size_t num_sequences, int64_t num_ranks, int64_t rank) {
  const auto first = [&](int64_t r) { return num_sequences * static_cast<size_t>(r) / static_cast<size_t>(num_ranks); };
  return {first(rank), first(rank + 1)};
}

// Runs cases one after another; each has pages of its own, with a copy of what the case before left.
class CaseRunner {
 public:
  CaseRunner(gpu::Engine& engine, const std::vector<golden::Case>& cases, int64_t dp_rank)
      : engine_(engine), cases_(cases), dp_rank_(dp_rank) {}

  void run(const golden::Case& step, model::Probe& probe) {
    gpu::StepInput input;
    auto& pages = pages_[step.name];
    const auto steps = golden::sequence_steps(cases_, step);
    const auto own = share_of(steps.size(), engine_.options().layout.dp, dp_rank_);
    for (size_t s = own.begin; s < own.end; ++s) {
      const auto& [num_cached, num_new] = steps[s];
      pages.emplace_back(static_cast<size_t>((num_cached + num_new + gpu::kPageRows - 1) / gpu::kPageRows));
      std::iota(pages.back().begin(), pages.back().end(), next_page_);
      next_page_ += static_cast<int32_t>(pages.back().size());
      if (!step.after.empty()) {
        const auto& before = pages_.at(step.after).at(s - own.begin);
        engine_.copy_pages(before, std::span(pages.back()).first(before.size()));
      }
      input.tokens.insert(input.tokens.end(), step.sequences[s].begin(), step.sequences[s].end());
    }
    const bool prefills = std::ranges::any_of(steps, [](const auto& sequence) { return sequence.num_new > 1; });
    for (size_t s = own.begin; s < own.end; ++s) {
      input.sequences.push_back({steps[s].num_cached, steps[s].num_new, prefills, pages[s - own.begin]});
    }
    input.head_rows.resize(input.tokens.size());
    std::iota(input.head_rows.begin(), input.head_rows.end(), 0);
    engine_.run_main(input, {.probe = &probe});
    const auto num_mtp = std::min(engine_.config().num_nextn_predict_layers, static_cast<int64_t>(step.mtp_ids.size()));
    for (int64_t k = 0; k < num_mtp; ++k) {
      if (!input.tokens.empty()) {
        input.tokens = mtp_tokens(step, k);
      }
      engine_.run_mtp(
          {.layer = k, .reads_main_state = k == 0, .state_rows = input.head_rows}, input, {.probe = &probe});
    }
  }

 private:
  gpu::Engine& engine_;
  const std::vector<golden::Case>& cases_;
  int64_t dp_rank_;
  std::map<std::string, std::vector<std::vector<int32_t>>> pages_;  // by case: of each own sequence
  int32_t next_page_ = 0;
};

void say(const EngineDumpJob& job, const std::string& line) {
  if (job.on_progress) {
    job.on_progress(line);
  }
}

// What one rank sees of the cases. `world` is null for one rank. Only the first rank speaks.
golden::Dump dump_rank(const model::WeightSource& weights,
                       const golden::Manifest& manifest,
                       RankDevice device,
                       const EngineDumpJob& job,
                       gpu::comm::Communicator* world) {
  const auto cases = job.cases.empty() ? manifest.cases : golden::select_cases(manifest.cases, job.cases);
  const int64_t rank = world != nullptr ? world->rank() : 0;
  auto options = options_of(cases);
  options.ue8m0_scales = manifest.scale == "ue8m0";
  options.scaled_stream = manifest.profile == "fp16";
  options.fp8_cache = job.fp8_cache;
  options.layout = job.layout;
  options.expert_of_slot = job.expert_of_slot;
  options.world = world;
  options.links = device.links.get();
  options.exchanges_by_kernels = true;
  if (job.change) {
    job.change(static_cast<int>(rank), options);
  }
  if (rank == 0) {
    options.on_plan = job.on_plan;
    options.on_progress = [&](int64_t done_bytes, int64_t all_bytes) {
      say(job, fmt::format("loading weights: {} of {} MB", done_bytes / 1000000, all_bytes / 1000000));
    };
  }
  gpu::Engine engine(weights, std::move(device.backend), options);
  CaseRunner runner(engine, cases, rank % job.layout.stage_len() / job.layout.tp);
  golden::Dump dump;
  for (const golden::Case& step : cases) {
    if (rank == 0) {
      say(job, "running " + step.name);
    }
    golden::Case all_rows = step;
    all_rows.rows.clear();
    golden::Recorder recorder(world != nullptr ? all_rows : step);
    runner.run(step, recorder);
    dump.tensors.insert(recorder.tensors().begin(), recorder.tensors().end());
  }
  if (job.on_done) {
    job.on_done(engine);
  }
  return dump;
}

}  // namespace

void check_profile(const golden::Manifest& manifest) {
  if (manifest.mode == "published" && (manifest.profile == "v32" || manifest.profile == "fp16")) {
    return;
  }
  const std::string has = manifest.mode != "published"
                              ? "mode " + manifest.mode
                              : fmt::format("profile {} with {} linears", manifest.profile, manifest.gemm);
  model::throw_input_error("--golden: recorded in {}, but the engine follows profiles v32 and fp16; record with: {}",
                           has,
                           record_command(manifest));
}

golden::Dump dump_engine(const model::WeightSource& weights,
                         const golden::Manifest& manifest,
                         std::unique_ptr<gpu::Backend> backend,
                         const EngineDumpJob& job) {
  return dump_rank(weights, manifest, {.links = nullptr, .backend = std::move(backend)}, job, nullptr);
}

golden::GatheredDump dump_ranks(const model::WeightSource& weights,
                                const golden::Manifest& manifest,
                                const OpenRank& open_rank,
                                const EngineDumpJob& job) {
  std::vector<golden::Dump> ranks(static_cast<size_t>(job.layout.num_ranks()));
  const auto num_ranks = static_cast<int>(ranks.size());
  const auto peers = std::make_shared<gpu::emulation::PeerGroup>(num_ranks);
  const auto run_rank = [&](gpu::comm::Communicator& world) {
    const auto wrapped = job.wrap ? job.wrap(world) : nullptr;
    ranks[static_cast<size_t>(world.rank())] =
        dump_rank(weights, manifest, open_rank(world, peers), job, wrapped ? wrapped.get() : &world);
  };
  gpu::comm::run_thread_ranks(num_ranks, {}, run_rank, [&](int, const std::string& what) { peers->fail(what); });
  const golden::RankLayout layout{.tp = job.layout.tp, .ep = job.layout.ep, .dp = job.layout.dp, .pp = job.layout.pp};
  const auto plan = model::parallel_plan(weights.config(), job.layout, job.expert_of_slot);
  auto gathered = golden::gather_ranks(layout, ranks, weights.config(), manifest.cases, row_owners_of(plan, ranks));
  for (const golden::Case& step : manifest.cases) {
    for (const std::string op : {"final_norm", "logits"}) {
      const auto found = gathered.dump.tensors.find(step.name + "/" + op);
      if (found != gathered.dump.tensors.end()) {
        found->second = golden::stored_rows(step, op, found->second);
      }
    }
  }
  return gathered;
}

}  // namespace tools
