#include "simulator/estimate_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "simulator/layout.hpp"

namespace simulator {
namespace {

constexpr double kGb = 1e9;
constexpr double kUsPerMs = 1e3;

std::string limit_text(Limit limit) {
  switch (limit) {
    case Limit::kMemory: return "cache memory: requests wait";
    case Limit::kPrefill: return "prefill: decode starves";
    case Limit::kNone: break;
  }
  return "none: all asked for decode";
}

// Where most of a step's time is.
std::string bottleneck(const Serving& serving) {
  if (serving.stall_ms > serving.step_ms) {
    return "prefill between decode steps";
  }
  const auto largest = std::ranges::max_element(serving.step.leaves, {}, &StepLeaf::total_us);
  const StepPartInfo& info = step_part_info(largest->part);
  return fmt::format("{}: {}", info.group, info.name);
}

double sum_ms(const StepCost& step, std::initializer_list<StepPart> parts) {
  return step.sum_us(std::span(parts)) / kUsPerMs;
}

std::string source_of(const StepLeaf& leaf, const std::vector<ChosenFit>& fits, const char* engine) {
  if (!leaf.family) {
    return leaf.source.empty() ? engine : std::string(leaf.source);
  }
  const ChosenFit& chosen = fits[static_cast<size_t>(*leaf.family)];
  if (leaf.answer) {
    return chosen.table->source(*leaf.answer);
  }
  return fmt::format("{}{}: {}; left-out error median {:.1f} %, p90 {:.1f} %",
                     chosen.is_borrowed ? "scaled from " : "fit on ",
                     chosen.measured_on,
                     chosen.fit.source,
                     100 * chosen.fit.residuals.median_frac,
                     100 * chosen.fit.residuals.p90_frac);
}

Table explain_table(const char* name, const char* title, const StepCost& cost, const std::vector<ChosenFit>& fits) {
  Table table{.name = name,
              .title = title,
              .columns = {{"group", "group"},
                          {"part", "part"},
                          {"calls", "calls"},
                          {"each_us", "each", "us", 1, 2},
                          {"total_ms", "total", "ms", 1, 4},
                          {"share_pct", "share", "%", 1, 1},
                          {"floor_ms", "floor", "ms", 1, 4, false, true},
                          {"bytes_each", "bytes each", "MB", 1e6, 2, false, true},
                          {"flops_each", "FLOPs each", "G", 1e9, 2, false, true},
                          {"formula", "formula"},
                          {"source", "source", {}, 1, -1, true}}};
  for (const StepLeaf& leaf : cost.leaves) {
    const StepPartInfo& info = step_part_info(leaf.part);
    const OpWork& work = leaf.work;
    table.add({std::string(info.group),
               std::string(info.name),
               leaf.count,
               leaf.each_us,
               leaf.total_us() / kUsPerMs,
               100 * leaf.total_us() / cost.total_us,
               leaf.count * leaf.floor_each_us / kUsPerMs,
               work.weight_bytes + work.other_bytes + work.message_bytes + work.nvlink_bytes + work.network_bytes,
               work.weight_flops + work.score_flops,
               std::string(info.formula),
               source_of(leaf, fits, "engine constants")});
  }
  table.add({std::string("total"),
             std::string(),
             1.0,
             cost.total_us,
             cost.total_us / kUsPerMs,
             100.0,
             cost.floor_us / kUsPerMs,
             {},
             {},
             std::string(),
             std::string()});
  return table;
}

}  // namespace

std::vector<Table> estimate_tables(const Deployment& deployment, const Serving& serving, const StepSpread& spread) {
  const RankLayout& rank = deployment.decode.rank;
  const double exchange_ms = sum_ms(serving.step, {StepPart::kDispatch, StepPart::kCombine});
  Table record{.name = "estimate",
               .title = fmt::format(
                   "{} with {} on {} GPUs", deployment.hardware.title, deployment.engine.name, deployment.num_gpus()),
               .columns = {{"decode_layout", "decode layout"},
                           {"gpus", "GPUs"},
                           {"kv_dtype", "KV cache"},
                           {"tpot_ms", "time per token", "ms", 1, 2},
                           {"tpot_low_ms", "  90 % interval from", "ms", 1, 2},
                           {"tpot_high_ms", "  to", "ms", 1, 2},
                           {"tpot_p50_ms", "  p50 over requests", "ms", 1, 2},
                           {"tpot_p99_ms", "  p99", "ms", 1, 2},
                           {"step_ms", "  of it the step", "ms", 1, 2},
                           {"stall_ms", "  of it waiting for prefill", "ms", 1, 2},
                           {"exchange_ms", "  dispatch and combine in a step", "ms", 1, 2},
                           {"exchange_share_pct", "    share of it", "%", 1, 1},
                           {"hidden_ms", "    of it hidden by two-batch overlap", "ms", 1, 2},
                           {"step_p50_ms", "  a decode step, p50", "ms", 1, 2},
                           {"step_p90_ms", "  p90", "ms", 1, 2},
                           {"step_p99_ms", "  p99", "ms", 1, 2},
                           {"ttft_ms", "time to first token", "ms", 1, 1},
                           {"prompt_ms", "  of it the prompt alone", "ms", 1, 1},
                           {"prompt_tokens_per_s_per_gpu", "prompt tokens/s a prefilling GPU", {}, 1, 1},
                           {"tokens_per_s_per_gpu", "tokens/s a GPU", {}, 1, 1},
                           {"tokens_per_s_per_user", "tokens/s a user", {}, 1, 1},
                           {"requests_per_s", "requests/s", {}, 1, 2},
                           {"asked_sequences", "sequences of a DP rank, asked for", {}, 1, 1},
                           {"decode_sequences", "  at work", {}, 1, 1},
                           {"limit", "what limits them"},
                           {"bottleneck", "largest cost"},
                           {"memory_gb", "memory of a GPU, used", "GB", 1, 1},
                           {"memory_usable_gb", "  usable", "GB", 1, 1},
                           {"fits", "  fits"}},
               .is_record = true};
  record.add({layout_text(rank.layout),
              deployment.num_gpus(),
              std::string(rank.kv_dtype == KvDtype::kFp8 ? "fp8" : "bf16"),
              serving.tpot_ms,
              serving.tpot_low_ms,
              serving.tpot_high_ms,
              serving.tpot_p50_ms,
              serving.tpot_p99_ms,
              serving.step_ms,
              serving.stall_ms,
              exchange_ms,
              100 * exchange_ms * kUsPerMs / serving.step.total_us,
              -sum_ms(serving.step, {StepPart::kHidden}),
              spread.p50_ms,
              spread.p90_ms,
              spread.p99_ms,
              serving.ttft_ms,
              serving.prompt.total_us / kUsPerMs,
              serving.prompt_tokens_per_s_per_gpu,
              serving.tokens_per_s_per_gpu,
              serving.tokens_per_s_per_user,
              serving.requests_per_s,
              serving.asked_sequences,
              serving.decode_sequences,
              limit_text(serving.limit),
              bottleneck(serving),
              serving.memory.total_bytes / kGb,
              serving.memory.usable_bytes / kGb,
              std::string(serving.memory.fits() ? "yes" : "not all sequences at once")});
  Table memory{.name = "memory",
               .title = "Memory of the fullest decode GPU, all sequences asked for in it",
               .columns = {{"item", "item"}, {"bytes", "GB", {}, kGb, 2}, {"formula", "formula"}}};
  for (const MemoryItem& item : serving.memory.items) {
    memory.add({item.name, item.bytes, item.formula});
  }
  memory.add({std::string("total"), serving.memory.total_bytes, std::string()});
  Table costs{.name = "costs",
              .title = "A decode step, largest first",
              .columns = {{"part", "part"},
                          {"total_ms", "time", "ms", 1, 3},
                          {"share_pct", "share", "%", 1, 1},
                          {"floor_ms", "floor", "ms", 1, 3, false, true}}};
  std::vector<StepLeaf> leaves = serving.step.leaves;
  std::ranges::stable_sort(leaves, std::greater{}, &StepLeaf::total_us);
  for (const StepLeaf& leaf : leaves) {
    const StepPartInfo& info = step_part_info(leaf.part);
    costs.add({fmt::format("{}: {}", info.group, info.name),
               leaf.total_us() / kUsPerMs,
               100 * leaf.total_us() / serving.step.total_us,
               leaf.count * leaf.floor_each_us / kUsPerMs});
  }
  Table notes{.name = "notes", .title = "Why the interval is as wide as it is", .columns = {{"note", "note"}}};
  for (const std::string& note : serving.notes) {
    notes.add({note});
  }
  std::vector<Table> tables{std::move(record), std::move(memory), std::move(costs)};
  if (!notes.rows.empty()) {
    tables.push_back(std::move(notes));
  }
  return tables;
}

std::vector<Table> explain_tables(const Serving& serving, const std::vector<ChosenFit>& fits) {
  return {explain_table("decode_step", "One decode step on the slowest rank", serving.step, fits),
          explain_table("prompt", "Prefill of one prompt", serving.prompt, fits)};
}

}  // namespace simulator
