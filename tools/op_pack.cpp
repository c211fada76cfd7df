#include "tools/op_pack.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tools/cli.hpp"
#include "tools/op_pack/judge.hpp"
#include "tools/op_pack/kinds.hpp"
#include "tools/op_pack/make.hpp"

namespace tools {
namespace {

using nlohmann::ordered_json;
using op_pack::OutputJudgement;

std::string shape_help(const op_pack::Kind& kind) {
  std::string text = "Shape keys (--shape KEY=NUMBER,...):\n";
  for (const auto& key : kind.keys) {
    text += fmt::format("  {:<12} {:<10} {}{}\n",
                        key.name,
                        key.usual,
                        key.meaning,
                        key.of_checkpoint ? "; a checkpoint decides it" : "");
  }
  return text +
         fmt::format(
             "Example:\n  dsv3-golden op {} --shape {} --out {}.safetensors\n", kind.name, kind.example, kind.name);
}

double inside_frac(const OutputJudgement& judgement) {
  return judgement.num_elements == 0
             ? 1
             : 1 - static_cast<double>(judgement.num_failed) / static_cast<double>(judgement.num_elements);
}

// JSON has no infinity: an element that no error explains uses 1e308 of its bound.
double finite(double value) {
  return std::isfinite(value) ? value : std::copysign(1e308, value);
}

ordered_json to_json(const OutputJudgement& judgement) {
  ordered_json row{{"output", judgement.output},
                   {"pass", judgement.passes()},
                   {"elements", judgement.num_elements},
                   {"failed", judgement.num_failed},
                   {"inside_frac", inside_frac(judgement)},
                   {"max_bound_use", finite(judgement.max_bound_use)}};
  if (!judgement.worst.empty()) {
    row["worst"] = {{"coordinate", judgement.worst},
                    {"got", finite(judgement.got)},
                    {"expected", finite(judgement.expected)},
                    {"bound", judgement.bound}};
  }
  row["reason"] = judgement.reason;
  row["note"] = judgement.note;
  return row;
}

void print(const OutputJudgement& judgement, bool is_choice) {
  fmt::print("{:<16} {:.4f} % of {} {} inside, largest use of a bound {:.2f}\n",
             judgement.output,
             100 * inside_frac(judgement),
             judgement.num_elements,
             is_choice ? "tokens" : "elements",
             judgement.max_bound_use);
  if (!judgement.passes()) {
    fmt::print("  {}\n", judgement.reason);
  }
  if (!judgement.worst.empty() && !is_choice) {
    fmt::print("  worst element: got {:.9g}, expected {:.9g} +- {:.2g} at [{}]\n",
               judgement.got,
               judgement.expected,
               judgement.bound,
               fmt::join(judgement.worst, ", "));
  }
  if (!judgement.note.empty()) {
    fmt::print("  {}\n", judgement.note);
  }
}

}  // namespace

void add_op(CLI::App& command, OpFlags& flags) {
  command.require_subcommand(1);
  flags.request.num_threads = default_threads();
  for (const auto& kind : op_pack::all_kinds()) {
    auto* sub = command.add_subcommand(std::string(kind.name), std::string(kind.summary));
    sub->footer("\n" + shape_help(kind));
    sub->get_formatter()->column_width(34);
    auto& request = flags.request;
    sub->add_option("--shape", request.shape, "sizes that differ from the ones below");
    if (std::any_of(kind.keys.begin(), kind.keys.end(), [](const auto& key) { return key.of_checkpoint; })) {
      sub->add_option(
          "--checkpoint", request.checkpoint, "take sizes and weights from this directory or synthetic:NAME[?seed=N]");
      sub->add_option("--layer", request.layer, "layer of the checkpoint");
    }
    if (!kind.usual_op.empty()) {
      sub->add_option("--op", request.op, fmt::format("whose weight in the layer (default: {})", kind.usual_op));
    }
    sub->add_option("--mode", request.mode.mode, kModeHelp)->capture_default_str();
    sub->add_option("--profile", request.mode.profile, "profile of mode published: v32, v3-demo, hf or fp16")
        ->capture_default_str();
    sub->add_option("--gemm",
                    request.mode.gemm,
                    "fp8 or bf16 (profile fp16: fp8 or fp16; default: fp8, or what the checkpoint is)");
    sub->add_option(
        "--scale", request.mode.scale, "activation scales: fp32 or ue8m0 (default: fp32, or the checkpoint's)");
    sub->add_option("--variant", request.variant, "another published rule for this op (a wrong name lists them)");
    add_seed(*sub, request.seed, "of the random inputs and weights");
    sub->add_option("--threads", request.num_threads, "threads; they never change a bit")->check(CLI::Range(1, 1024));
    sub->add_option("--out", flags.out, "op pack to write")->required();
    sub->callback([&flags, sub] { flags.request.kind = sub->get_name(); });
  }
}

int run_op(const OpFlags& flags) {
  show_progress("computing " + flags.request.kind);
  const auto pack = op_pack::make_pack(flags.request);
  op_pack::write_pack(flags.out, pack);
  clear_progress();
  fmt::print("wrote {} ({}) to {}\n", flags.request.kind, pack.facts.at("shape").dump(), flags.out);
  return kExitOk;
}

void add_op_verify(CLI::App& command, OpVerifyFlags& flags) {
  command.add_option("pack", flags.pack, "op pack that dsv3-golden op wrote")->required();
  command.add_option("--output", flags.output, "what your kernel gave: .safetensors or .npy")->required();
  command.add_flag("--json", flags.json, "machine-readable verdict");
}

int run_op_verify(const OpVerifyFlags& flags) {
  const auto pack = op_pack::read_pack(flags.pack);
  const auto judgements = op_pack::judge(pack, op_pack::read_outputs(flags.output, pack));
  const bool passes = std::all_of(judgements.begin(), judgements.end(), [](const auto& j) { return j.passes(); });
  const std::string kind = pack.facts.value("kind", "");
  if (flags.json) {
    ordered_json rows = ordered_json::array();
    std::transform(judgements.begin(), judgements.end(), std::back_inserter(rows), to_json);
    fmt::print("{}\n", ordered_json{{"kind", kind}, {"pass", passes}, {"outputs", rows}}.dump(1));
    return passes ? kExitOk : kExitCheckFailed;
  }
  for (const auto& judgement : judgements) {
    print(judgement, kind == "router" && judgement.output == "output");
  }
  if (judgements.size() < pack.outputs.size()) {
    fmt::print("{} of {} outputs were given\n", judgements.size(), pack.outputs.size());
  }
  fmt::print("{}\n", passes ? "PASS" : "FAIL");
  return passes ? kExitOk : kExitCheckFailed;
}

}  // namespace tools
