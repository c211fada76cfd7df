#include "simulator/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "model/check.hpp"
#include "model/printable.hpp"
#include "simulator/layout.hpp"

namespace simulator {
namespace {

constexpr double kBitsOfByte = 8;

// Times as much, or a value of its own.
void change(Figure& figure, const std::string& text, const char* flag, bool takes_bits) {
  if (text.empty()) {
    return;
  }
  const bool is_factor = text.front() == 'x';
  const bool is_bits = takes_bits && text.back() == 'G';
  const char* begin = text.data() + (is_factor ? 1 : 0);
  const char* end = text.data() + text.size() - (is_bits ? 1 : 0);
  double value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || !(value > 0) || value > 1e9 || (is_factor && is_bits)) {
    model::throw_input_error("{} {}: expected a factor like x1.4 or a number{}",
                             flag,
                             model::printable(text),
                             takes_bits ? " of GB/s, or of Gb/s like 800G" : "");
  }
  figure.value = is_factor ? figure.value * value : is_bits ? value / kBitsOfByte : value;
  figure.source = fmt::format("{} {}", flag, text);
}

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
          {"first draft kept", "1", [](Deployment& deployment) {
             auto& acceptance = deployment.workload.acceptance;
             return acceptance.empty() ? nullptr : acceptance.data();
           }}};
}

}  // namespace

Hardware changed(const Hardware& hardware, const HardwareChanges& changes) {
  Hardware result = hardware;
  change(result.memory_gb_per_s, changes.memory_rate, "--hbm", false);
  change(result.nvlink_gb_per_s, changes.nvlink, "--nvlink", false);
  change(result.nic_gb_per_s, changes.nic, "--nic", true);
  if (!changes.peak.empty()) {
    Figure& fp8 = result.fp8_dense_tflops ? *result.fp8_dense_tflops : result.bf16_dense_tflops;
    const double before = fp8.value;
    change(fp8, changes.peak, "--peak", false);
    if (result.fp8_dense_tflops) {
      result.bf16_dense_tflops.value *= fp8.value / before;
    }
  }
  if (changes.nvlink_domain) {
    constexpr int64_t kMostGpus = 1 << 16;
    if (*changes.nvlink_domain < 1 || *changes.nvlink_domain > kMostGpus) {
      model::throw_input_error("--nvlink-domain {}: expected 1 to {} GPUs", *changes.nvlink_domain, kMostGpus);
    }
    result.nvlink_domain_gpus = {.value = static_cast<double>(*changes.nvlink_domain),
                                 .source = fmt::format("--nvlink-domain {}", *changes.nvlink_domain)};
  }
  if (changes.sms < 1 || changes.comm_sms < 0 || changes.comm_sms >= changes.sms) {
    model::throw_input_error(
        "--comm-sms {}: expected 0 up to {}, of the {} SMs of --sms", changes.comm_sms, changes.sms - 1, changes.sms);
  }
  const double left = static_cast<double>(changes.sms - changes.comm_sms) / static_cast<double>(changes.sms);
  result.bf16_dense_tflops.value *= left;
  if (result.fp8_dense_tflops) {
    result.fp8_dense_tflops->value *= left;
  }
  return result;
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
