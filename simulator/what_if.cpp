#include "simulator/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "model/check.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

struct Parameter {
  const char* name;
  const char* unit;
  std::function<double*(Deployment&)> of;  // null where the deployment has none
};

std::vector<Parameter> parameters() {
  const auto figure = [](Figure Hardware::*member) {
    return [member](Deployment& deployment) { return &(deployment.hardware.*member).value; };
  };
  const auto engine = [](double EngineProfile::*member) {
    return [member](Deployment& deployment) { return &(deployment.engine.*member); };
  };
  const auto workload = [](double Workload::*member) {
    return [member](Deployment& deployment) { return &(deployment.workload.*member); };
  };
  return {{"memory rate", "GB/s", figure(&Hardware::memory_gb_per_s)},
          {"NVLink", "GB/s", figure(&Hardware::nvlink_gb_per_s)},
          {"network of a GPU", "GB/s", figure(&Hardware::nic_gb_per_s)},
          {"BF16 peak", "TFLOPS", figure(&Hardware::bf16_dense_tflops)},
          {"FP8 peak",
           "TFLOPS",
           [](Deployment& deployment) {
             auto& peak = deployment.hardware.fp8_dense_tflops;
             return peak ? &peak->value : nullptr;
           }},
          {"host time of a step", "us", engine(&EngineProfile::host_us)},
          {"stream factor", "1", engine(&EngineProfile::stream_factor)},
          {"prefill factor", "1", engine(&EngineProfile::prefill_factor)},
          {"requests in the system", "1", workload(&Workload::concurrency)},
          {"prompt", "tokens", workload(&Workload::prompt_tokens)},
          {"answer", "tokens", workload(&Workload::answer_tokens)},
          {"cached share of a prompt", "1", workload(&Workload::prefix_hit)},
          {"prefill chunk", "tokens", workload(&Workload::prefill_chunk)},
          {"steps between chunks",
           "1",
           [](Deployment& deployment) {
             return deployment.workload.prefill_chunk > 0 ? &deployment.workload.steps_per_chunk : nullptr;
           }},
          {"first draft kept", "1", [](Deployment& deployment) {
             auto& acceptance = deployment.workload.acceptance;
             return acceptance.empty() ? nullptr : acceptance.data();
           }}};
}

struct WhatIf {
  const char* name;
  std::string flag;
  std::function<void(HardwareChanges&, Deployment&)> apply;
};

std::vector<WhatIf> what_ifs(const WhatIfBase& base) {
  const auto rate = [](std::string HardwareChanges::*member, const char* value) {
    return [member, value](HardwareChanges& changes, Deployment&) { changes.*member = value; };
  };
  const auto sms = [](int64_t comm_sms) {
    return [comm_sms](HardwareChanges& changes, Deployment&) { changes.comm_sms = comm_sms; };
  };
  const Deployment& now = base.as_built;
  const int64_t worker_gpus = now.decode.rank.layout.num_ranks();
  std::vector<WhatIf> all{{"memory x1.4", "--hbm x1.4", rate(&HardwareChanges::memory_rate, "x1.4")},
                          {"NVLink x2", "--nvlink x2", rate(&HardwareChanges::nvlink, "x2")},
                          {"network of 800 Gb/s", "--nic 800G", rate(&HardwareChanges::nic, "800G")},
                          {"NVLink and network one domain",
                           fmt::format("--nvlink-domain {}", worker_gpus),
                           [worker_gpus](HardwareChanges& changes, Deployment&) {
                             changes.nvlink_domain = std::max(worker_gpus, changes.nvlink_domain.value_or(0));
                           }},
                          {"FP8 accumulation in 34 bits, at most",
                           "--fp8-accumulation 34bit",
                           [](HardwareChanges& changes, Deployment&) { changes.wide_fp8_accumulation = true; }},
                          {"20 SMs for communication", "--comm-sms 20", sms(20)},
                          {"communication co-processor", "--comm-sms 0", sms(0)}};
  if (!now.decode.rank.two_batch_overlap && now.decode.rank.is_spread()) {
    all.push_back({"two-batch overlap", "--two-batch-overlap", [](HardwareChanges&, Deployment& deployment) {
                     deployment.decode.rank.two_batch_overlap = true;
                   }});
  }
  if (!now.decode.rank.eplb && now.decode.rank.is_spread()) {
    all.push_back({"experts placed by load", "--eplb", [](HardwareChanges&, Deployment& deployment) {
                     deployment.decode.rank.eplb = true;
                   }});
  }
  if (now.decode.rank.kv_dtype == KvDtype::kBf16) {
    all.push_back({"FP8 cache", "--kv-dtype fp8", [](HardwareChanges&, Deployment& deployment) {
                     deployment.decode.rank.kv_dtype = KvDtype::kFp8;
                   }});
  }
  return all;
}

}  // namespace

Table what_if_table(const WhatIfBase& base, MoeCurves& curves) {
  Table table{.name = "what_ifs",
              .title = "One thing changed at a time",
              .columns = {{"what_if", "what if"},
                          {"flag", "flag of estimate"},
                          {"tpot_ms", "a token", "ms", 1, 2},
                          {"tpot_change_pct", "change", "%", 1, 1},
                          {"prompt_ms", "a prompt", "ms", 1, 1},
                          {"prompt_change_pct", "change", "%", 1, 1},
                          {"tokens_per_s_per_gpu", "tokens/s", "a GPU", 1, 1}}};
  double tpot_ms = 0;
  double prompt_ms = 0;
  const auto add = [&](const WhatIf& what_if, MoeCurves& with) {
    HardwareChanges changes = base.changes;
    Deployment deployment = base.as_built;
    what_if.apply(changes, deployment);
    const Hardware as_built = deployment.hardware;
    deployment.hardware = changed(as_built, changes);
    const Serving serving = serve(deployment, changed(base.fits, as_built, changes), with);
    const double this_prompt_ms = serving.prompt.total_us / 1e3;
    tpot_ms = tpot_ms == 0 ? serving.tpot_ms : tpot_ms;
    prompt_ms = prompt_ms == 0 ? this_prompt_ms : prompt_ms;
    table.add({std::string(what_if.name),
               what_if.flag,
               serving.tpot_ms,
               100 * (serving.tpot_ms / tpot_ms - 1),
               this_prompt_ms,
               100 * (this_prompt_ms / prompt_ms - 1),
               serving.tokens_per_s_per_gpu});
  };
  add({"as it is", "", [](HardwareChanges&, Deployment&) {}}, curves);
  for (const WhatIf& what_if : what_ifs(base)) {
    try {
      add(what_if, curves);
    } catch (const model::InputError&) {
      // A back end that this domain does not have, or rows of tables that do not tell: not a change of this deployment.
    }
  }
  RoutingAssumptions equal = curves.routing();
  if (equal.skew.family != SkewFamily::kBalanced) {
    equal.skew = {.family = SkewFamily::kBalanced};
    MoeCurves of_equal(equal);
    add({"equally popular experts", "--skew balanced", [](HardwareChanges&, Deployment&) {}}, of_equal);
  }
  return table;
}

Table sensitivity_table(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves) {
  constexpr double kStep = 0.05;
  const double base_ms = serve(deployment, fits, curves).tpot_ms;
  Table table{.name = "sensitivity",
              .title = fmt::format("Mean time per token, {:.2f} ms: its slope", base_ms),
              .columns = {{"parameter", "parameter"},
                          {"value", "value"},
                          {"unit", "unit"},
                          {"ms_per_unit", "slope", "ms/unit", 1, 6},
                          {"pct_per_pct", "1 % more", "% of the time", 1, 3}}};
  for (const Parameter& parameter : parameters()) {
    Deployment moved = deployment;
    double* value = parameter.of(moved);
    if (value == nullptr || *value == 0) {
      continue;
    }
    const double middle = *value;
    const auto at = [&](double factor) {
      *value = middle * factor;
      return serve(moved, fits, curves).tpot_ms;
    };
    const double high = at(1 + kStep);
    const double slope = (high - at(1 - kStep)) / (2 * kStep * middle);
    table.add({std::string(parameter.name), middle, std::string(parameter.unit), slope, slope * middle / base_ms});
  }
  return table;
}

Table mtp_table(const Deployment& deployment, const std::vector<ChosenFit>& fits, MoeCurves& curves) {
  Table table{.name = "mtp",
              .title = "Drafts by depth, the batch asked for",
              .columns = {{"depth", "drafts"},
                          {"acceptance", "acceptance of the last", {}, 1, 3},
                          {"break_even", "pays above", {}, 1, 3},
                          {"step_ms", "step", "ms", 1, 2},
                          {"tokens_per_step", "tokens of a step", {}, 1, 2},
                          {"tpot_ms", "time per token", "ms", 1, 2}}};
  double shallower_step_ms = 0;
  double shallower_tokens = 1;
  double kept = 1;  // chance that all drafts before the last are kept
  const std::vector<double>& acceptance = deployment.workload.acceptance;
  for (size_t depth = 0; depth <= acceptance.size(); ++depth) {
    Deployment cut = deployment;
    cut.workload.acceptance.resize(depth);
    cut.decode.rank.mtp_depth = static_cast<int64_t>(depth);
    const Serving serving = serve(cut, fits, curves);
    const double step_ms = serving.step.total_us / 1e3;
    if (depth == 0) {
      table.add({int64_t{0}, {}, {}, step_ms, 1.0, serving.tpot_ms});
    } else {
      // The last draft adds kept * p tokens: it pays if the step grows by a smaller share than the tokens.
      const double break_even = shallower_tokens * (step_ms / shallower_step_ms - 1) / kept;
      const double tokens = tokens_per_step(cut.workload.acceptance);
      table.add({static_cast<int64_t>(depth), acceptance[depth - 1], break_even, step_ms, tokens, serving.tpot_ms});
      kept *= acceptance[depth - 1];
      shallower_tokens = tokens;
    }
    shallower_step_ms = step_ms;
  }
  return table;
}

std::vector<Table> comparison_tables(const Compared& a, const Compared& b) {
  Table results{.name = "results",
                .title = fmt::format("A: {}; B: {}", a.name, b.name),
                .columns = {{"figure", "figure"}, {"a", "A"}, {"b", "B"}, {"b_over_a", "B / A", {}, 1, 3}}};
  results.add({std::string("decode layout"),
               layout_text(a.deployment.decode.rank.layout),
               layout_text(b.deployment.decode.rank.layout),
               {}});
  results.add({std::string("hardware"), a.deployment.hardware.name, b.deployment.hardware.name, {}});
  results.add({std::string("engine"), a.deployment.engine.name, b.deployment.engine.name, {}});
  const auto figure = [&](const char* name, double left, double right) {
    results.add({std::string(name), left, right, left == 0 ? Cell{} : Cell{right / left}});
  };
  figure("GPUs", static_cast<double>(a.deployment.num_gpus()), static_cast<double>(b.deployment.num_gpus()));
  figure("sequences of a DP rank", a.serving.decode_sequences, b.serving.decode_sequences);
  figure("time per token (ms)", a.serving.tpot_ms, b.serving.tpot_ms);
  figure("decode step (ms)", a.serving.step_ms, b.serving.step_ms);
  figure("waiting for prefill (ms)", a.serving.stall_ms, b.serving.stall_ms);
  figure("time to first token (ms)", a.serving.ttft_ms, b.serving.ttft_ms);
  figure("tokens/s a GPU", a.serving.tokens_per_s_per_gpu, b.serving.tokens_per_s_per_gpu);
  figure("tokens/s a user", a.serving.tokens_per_s_per_user, b.serving.tokens_per_s_per_user);
  figure("memory of a GPU (GB)", a.serving.memory.total_bytes / 1e9, b.serving.memory.total_bytes / 1e9);

  std::map<StepPart, std::array<double, 2>> times_ms;
  for (const StepLeaf& leaf : a.serving.step.leaves) {
    times_ms[leaf.part][0] += leaf.total_us() / 1e3;
  }
  for (const StepLeaf& leaf : b.serving.step.leaves) {
    times_ms[leaf.part][1] += leaf.total_us() / 1e3;
  }
  std::vector<std::pair<StepPart, std::array<double, 2>>> parts(times_ms.begin(), times_ms.end());
  std::erase_if(parts, [](const auto& part) { return part.second[0] == part.second[1]; });
  std::ranges::stable_sort(
      parts, std::greater{}, [](const auto& part) { return std::abs(part.second[1] - part.second[0]); });
  Table table{.name = "parts",
              .title = "A decode step, parts that differ",
              .columns = {{"part", "part"},
                          {"a_ms", "A", "ms", 1, 3},
                          {"b_ms", "B", "ms", 1, 3},
                          {"b_minus_a_ms", "B - A", "ms", 1, 3}}};
  for (const auto& [part, ms] : parts) {
    const StepPartInfo& info = step_part_info(part);
    table.add({fmt::format("{}: {}", info.group, info.name), ms[0], ms[1], ms[1] - ms[0]});
  }
  return {std::move(results), std::move(table)};
}

}  // namespace simulator
