#include "tools/infer/device_run.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "gpu/engine/scheduler.hpp"
#include "reference/generate/sampler.hpp"
#include "tools/device/open.hpp"

namespace tools {

std::vector<gpu::Request> device_requests(const std::vector<reference::Request>& requests) {
  std::vector<gpu::Request> result;
  for (const reference::Request& request : requests) {
    result.push_back({.prompt = request.prompt,
                      .max_new_tokens = request.max_new_tokens,
                      .sampling = request.sampling,
                      .draw_request = request.draw_request,
                      .stop_tokens = request.stop_tokens});
  }
  return result;
}

bool is_fp16(const InferFlags& flags) {
  return flags.mode.profile == "fp16";
}

gpu::EngineOptions engine_options(const InferFlags& flags,
                                  const model::ModelConfig& config,
                                  const std::vector<reference::Request>& requests,
                                  const gpu::SchedulerOptions& scheduling) {
  int64_t max_len = 0;
  std::vector<int64_t> pages;
  for (const reference::Request& request : requests) {
    const auto len = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
    max_len = std::max(max_len, len);
    pages.push_back((len + gpu::kPageRows - 1) / gpu::kPageRows);
  }
  const auto max_batch = std::min(flags.max_batch, static_cast<int64_t>(requests.size()));
  std::ranges::sort(pages, std::greater<>());
  gpu::EngineOptions options{.limits = gpu::Scheduler::limits_of(config, scheduling, max_batch, max_len),
                             .ue8m0_scales = flags.mode.scale == "ue8m0",
                             .scaled_stream = is_fp16(flags),
                             .fp8_cache = is_fp8_cache(flags.kv, is_fp16(flags)),
                             .use_graphs = flags.graphs == "on"};
  for (int64_t i = 0; i < max_batch; ++i) {
    options.num_pages += pages[static_cast<size_t>(i)];
  }
  options.on_plan = [](const std::string& plan) { fmt::print(stderr, "device memory: {}\n", plan); };
  options.on_progress = [](int64_t done_bytes, int64_t all_bytes) {
    show_progress(fmt::format("loading weights: {} of {} MB", done_bytes / 1000000, all_bytes / 1000000));
  };
  return options;
}

DeviceResult result_of(const gpu::SchedulerStats& stats, const std::vector<gpu::FinishReason>& reasons) {
  DeviceResult result{.reasons = {},
                      .stats = {.num_prompt_tokens = stats.num_prompt_tokens,
                                .num_new_tokens = stats.num_new_tokens,
                                .prefill_s = stats.prefill_s,
                                .decode_s = stats.decode_s,
                                .num_drafted = stats.num_drafted,
                                .num_accepted = stats.num_accepted}};
  for (const gpu::FinishReason reason : reasons) {
    result.reasons.push_back(reason == gpu::FinishReason::kStop ? reference::FinishReason::kStop
                                                                : reference::FinishReason::kLength);
  }
  return result;
}

gpu::SchedulerOptions scheduling_of(const InferFlags& flags) {
  return {.chunk_len = flags.chunk_len, .num_drafts = flags.num_drafts, .with_logits = flags.num_logprobs > 0};
}

reference::GeneratedToken token_of(const gpu::NewToken& token, int64_t num_logprobs) {
  reference::GeneratedToken result{.id = token.id, .draft = token.draft};
  if (num_logprobs > 0) {
    const std::vector<double> logits(token.logits.begin(), token.logits.end());
    result.logprob = reference::logprob(logits, token.id);
    result.top = reference::top_logprobs(logits, num_logprobs);
  }
  return result;
}

gpu::Scheduler::OnStep device_watch(std::vector<size_t> numbers,
                                    reference::StepProbe* probe,
                                    DeviceTrace* trace,
                                    ShareOfRows share) {
  if (probe == nullptr && trace == nullptr) {
    return {};
  }
  return [numbers = std::move(numbers), probe, trace, share = std::move(share)](
             const gpu::StepInfo& step) -> gpu::Watch {
    if (probe != nullptr) {
      std::vector<reference::RowOrigin> rows;
      const auto num_rows = std::ssize(step.rows);
      const auto [first, count] = share ? share(num_rows) : gpu::Shard::Share{0, num_rows};
      for (const auto& [request, position] :
           std::span(step.rows).subspan(static_cast<size_t>(first), static_cast<size_t>(count))) {
        rows.push_back({.request = static_cast<int64_t>(numbers[static_cast<size_t>(request)]), .position = position});
      }
      probe->enter_step(std::move(rows));
    }
    return {.probe = probe, .times = trace != nullptr ? trace->enter_step(step) : nullptr};
  };
}

void check_device_flags(const InferFlags& flags) {
  const auto refuse = [&](const std::string& flag, const std::string& value, const std::string& expected) {
    model::throw_input_error("{} {}: the engine of --device {} has {}", flag, value, flags.device, expected);
  };
  if (flags.mode.mode != "published") {
    refuse("--mode", flags.mode.mode, "published");
  }
  if (flags.mode.profile != "v32" && !is_fp16(flags)) {
    refuse("--profile", flags.mode.profile, "profiles v32 and fp16");
  }
  if (flags.mode.attention == "naive") {
    refuse("--attention", flags.mode.attention, "the absorbed form");
  }
  if (flags.page_rows != gpu::kPageRows) {
    refuse("--page-size", std::to_string(flags.page_rows), fmt::format("pages of {} positions", gpu::kPageRows));
  }
}

DeviceResult run_on_device(const InferFlags& flags,
                           const model::WeightSource& weights,
                           const std::vector<reference::Request>& requests,
                           const reference::Generator::OnToken& on_token,
                           reference::StepProbe* probe,
                           DeviceTrace* trace) {
  const auto scheduling = scheduling_of(flags);
  gpu::Engine engine(weights,
                     open_device({.device = flags.device, .fp16 = is_fp16(flags)}, flags.num_threads),
                     engine_options(flags, weights.config(), requests, scheduling));
  clear_progress();
  gpu::Scheduler scheduler(engine, scheduling);
  std::vector<size_t> numbers(requests.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  const auto reasons = scheduler.run(
      device_requests(requests),
      [&](size_t request, const gpu::NewToken& token) {
        return on_token(request, token_of(token, flags.num_logprobs));
      },
      device_watch(std::move(numbers), probe, trace));
  return result_of(scheduler.stats(), reasons);
}

}  // namespace tools
