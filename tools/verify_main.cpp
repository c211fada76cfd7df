// dsv3-verify: holds a dump against the reference, op by op, and says where it goes wrong first.
#include <fmt/color.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>
#include <optional>

#include "golden/compare.hpp"
#include "golden/formats.hpp"
#include "golden/ranks.hpp"
#include "golden/store.hpp"
#include "gpu/emulation/fault.hpp"
#include "gpu/engine/dequantised_source.hpp"
#include "gpu/engine/kernel_of.hpp"
#include "tools/cli.hpp"
#include "tools/device/engine_dump.hpp"
#include "tools/device/kernel_faults.hpp"
#include "tools/device/layout_flags.hpp"
#include "tools/device/open.hpp"
#include "tools/list_required.hpp"
#include "tools/op_pack.hpp"
#include "tools/recompute.hpp"
#include "tools/record.hpp"
#include "tools/score.hpp"
#include "tools/synthetic/argument.hpp"
#include "tools/tensor_core.hpp"

namespace tools {
namespace {

struct VerifyFlags {
  std::string golden;
  std::string checkpoint;
  std::string against;
  std::string format = "dsv3";
  DeviceFlags device;  // in place of `against`
  std::string kv;      // of the device
  std::string kernel_fault;
  std::vector<std::string> case_names;
  std::string junit;
  bool json = false;
  bool strict = false;
  bool with_oracle_ratio = false;
  std::string pin_routing;
  std::string layout;  // of a dump
  LayoutFlags ranks;   // of the device
  int num_threads = default_threads();
};

// The checkpoint that a golden file was made from: every tensor is held against the hash in the manifest when it is first read.
class CheckedWeights : public model::WeightSource {
 public:
  CheckedWeights(const model::WeightSource& original, const golden::Manifest& manifest)
      : original_(original), manifest_(manifest) {}

  [[nodiscard]] const model::ModelConfig& config() const override { return original_.config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    auto tensor = original_.weight(name);
    const std::lock_guard lock(mutex_);  // every rank reads its part
    const auto expected = manifest_.weight_hashes.find(name);
    if (expected != manifest_.weight_hashes.end() && !checked_.contains(name)) {
      if (golden::content_hash(tensor) != expected->second) {
        model::throw_input_error("checkpoint: {} is not the tensor the golden file was made from (hash differs)", name);
      }
      checked_.insert(name);
    }
    return tensor;
  }

  [[nodiscard]] model::TensorView rows(const std::string& name, int64_t begin, int64_t end) const override {
    return manifest_.weight_hashes.contains(name) ? WeightSource::rows(name, begin, end)
                                                  : original_.rows(name, begin, end);
  }

 private:
  const model::WeightSource& original_;
  const golden::Manifest& manifest_;
  mutable std::mutex mutex_;
  mutable std::set<std::string> checked_;
};

std::string element_text(const golden::Divergence& d) {
  return fmt::format(
      "got {:.9g}, expected {:.9g} +- {:.2g} at [{}]", d.got, d.expected, d.bound, fmt::join(d.coordinate, ", "));
}

void print_divergence(const golden::Divergence& d) {
  fmt::print("first divergence: {} in case {}, token {}, rank {}\n", d.op, d.case_name, d.token, d.rank);
  fmt::print("  {}\n", d.reason);
  if (!d.coordinate.empty()) {
    fmt::print("  worst element: {}\n", element_text(d));
  }
  fmt::print("  recomputed from: {}\n", fmt::join(d.reads, ", "));
}

void print_verdict(const golden::Verdict& verdict, const golden::Dump& dump) {
  using golden::OpStatus;
  std::map<OpStatus, int64_t> counts;
  double largest_use = 0;
  for (const auto& op : verdict.ops) {
    ++counts[op.status];
    switch (op.status) {
      case OpStatus::kDiverged: fmt::print("diverged   {}/{}: {}\n", op.case_name, op.op, op.divergence->reason); break;
      case OpStatus::kVariant: fmt::print("variant    {}/{}: {}\n", op.case_name, op.op, op.variant); break;
      case OpStatus::kFlip:
      case OpStatus::kUndecided:
      case OpStatus::kMissing:
        fmt::print("{:<10} {}/{}: {}\n", golden::status_name(op.status), op.case_name, op.op, op.reason);
        break;
      default: largest_use = std::max(largest_use, op.max_bound_use);
    }
  }
  for (const auto& note : verdict.notes) {
    fmt::print("note       {}\n", note);
  }
  if (!dump.unused.empty()) {
    fmt::print("note       {} names of the dump are not part of the comparison, for example {}\n",
               dump.unused.size(),
               dump.unused[0]);
  }
  std::vector<std::string> parts;
  for (const auto& [status, count] : counts) {
    parts.push_back(fmt::format("{} {}", count, golden::status_name(status)));
  }
  fmt::print("{} ops: {}; largest use of a bound {:.2f}\n", verdict.ops.size(), fmt::join(parts, ", "), largest_use);
  const auto largest = std::ranges::max_element(verdict.ops, {}, &golden::OpResult::oracle_ratio);
  if (largest != verdict.ops.end() && largest->oracle_ratio) {
    fmt::print("largest error over the profile's own, both against exact arithmetic: {:.3g} in {}/{}\n",
               *largest->oracle_ratio,
               largest->case_name,
               largest->op);
  }
  if (const auto* first = verdict.first_divergence(); first != nullptr) {
    print_divergence(*first->divergence);
  }
  switch (verdict.outcome) {
    case golden::Verdict::Outcome::kPass: fmt::print("PASS against profile {}\n", verdict.profile); break;
    case golden::Verdict::Outcome::kFail: fmt::print("FAIL against profile {}\n", verdict.profile); break;
    case golden::Verdict::Outcome::kUndecided:
      fmt::print("UNDECIDED against profile {}: nothing diverged, but not everything could be judged\n",
                 verdict.profile);
  }
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) {
    model::throw_input_error("--junit {}: cannot be written", path);
  }
}

// The dump, put together if it is one of many ranks.
golden::GatheredDump read_ranks(const VerifyFlags& flags,
                                const model::ModelConfig& config,
                                const std::vector<golden::Case>& cases) {
  if (flags.layout.empty()) {
    return {.dump = golden::read_dump(flags.against, flags.format, config, cases), .origins = {}, .disagreements = {}};
  }
  const auto layout = golden::parse_rank_layout(flags.layout);
  const auto ranks = golden::read_ranks(flags.against, layout, flags.format, config, cases);
  return golden::gather_ranks(layout, ranks, config, cases);
}

// The engine's form of attention in a case: expanded if any of its sequences has several new tokens.
model::AttentionForm form_of(const std::vector<golden::Case>& cases, const std::string& name) {
  const auto found = std::ranges::find(cases, name, &golden::Case::name);
  const bool prefills = found != cases.end() &&
                        std::ranges::any_of(found->sequences, [](const auto& tokens) { return tokens.size() > 1; });
  return prefills ? model::AttentionForm::kExpanded : model::AttentionForm::kAbsorbed;
}

// What the engine's kernels compute for the golden file's cases.
golden::GatheredDump run_device(const VerifyFlags& flags,
                                const model::WeightSource& weights,
                                const golden::Manifest& manifest,
                                const std::vector<std::string>& cases) {
  check_profile(manifest);
  DeviceFlags device = flags.device;
  device.fp16 = manifest.profile == "fp16";
  if (device.fp16 && !flags.kernel_fault.empty()) {
    model::throw_input_error("--kernel-fault: the kernels with faults compute in BF16, those of profile fp16 in FP16");
  }
  const model::ParallelLayout layout = layout_of(flags.ranks, weights.config());
  if (flags.device.device == "cuda") {  // said once, not by every rank
    require_cuda();
  }
  const auto open_faulty = [&](int num_threads, const Peers& peers) {
    return make_faulty_backend(
        emulation_options(device, num_threads, peers), device.races, kernel_fault(flags.kernel_fault));
  };
  const auto open_rank = [&](gpu::comm::Communicator& world, const Peers& peers) {
    return flags.kernel_fault.empty() ? open_rank_device(device, world, peers)
                                      : RankDevice{.links = nullptr, .backend = open_faulty(1, peers)};
  };
  const auto open_alone = [&] {
    return flags.kernel_fault.empty() ? open_device(device, flags.num_threads)
                                      : open_faulty(flags.num_threads, nullptr);
  };
  const EngineDumpJob job{.cases = cases,
                          .fp8_cache = is_fp8_cache(flags.kv, device.fp16),
                          .layout = layout,
                          .expert_of_slot = expert_slots_of(flags.ranks, weights.config(), layout),
                          .on_progress = show_progress,
                          .on_plan = [&](const std::string& plan) {
                            if (!flags.json) {
                              fmt::print("{:<10} {}\n", layout.num_ranks() > 1 ? "each rank" : "device", plan);
                            }
                          }};
  auto gathered =
      layout.num_ranks() > 1
          ? dump_ranks(weights, manifest, open_rank, job)
          : golden::GatheredDump{
                .dump = dump_engine(weights, manifest, open_alone(), job), .origins = {}, .disagreements = {}};
  clear_progress();
  return gathered;
}

golden::PinRouting parse_pin(const std::string& text) {
  if (text.empty()) {
    return golden::PinRouting::kNone;
  }
  if (text == "ids") {
    return golden::PinRouting::kIds;
  }
  if (text == "ids+weights") {
    return golden::PinRouting::kIdsAndWeights;
  }
  model::throw_input_error("--pin-routing {}: expected ids or ids+weights", text);
}

int run_verify(const VerifyFlags& flags) {
  // Not CLI11's required(): the subcommands need neither.
  if (flags.golden.empty()) {
    model::throw_input_error("--golden is required");
  }
  if (!flags.kernel_fault.empty() && flags.device.device != "emulated") {
    model::throw_input_error("--kernel-fault goes with --device emulated");
  }
  if (flags.against.empty() == flags.device.device.empty()) {
    model::throw_input_error("give one of --against and --device");
  }
  const auto golden = golden::read_golden(flags.golden);
  const auto& manifest = golden.manifest;
  const std::string directory = flags.checkpoint.empty() ? manifest.checkpoint : flags.checkpoint;
  if (flags.checkpoint.empty() && !synthetic::is_synthetic(directory) && !std::filesystem::exists(directory)) {
    model::throw_input_error("--checkpoint is needed: {}, which the golden file names, is not here", directory);
  }
  const auto checkpoint = open_checkpoint(directory);
  if (checkpoint.hash != manifest.checkpoint_hash) {
    model::throw_input_error(
        "--checkpoint {}: not the checkpoint the golden file was made from (headers {}, manifest {})",
        directory,
        checkpoint.hash,
        manifest.checkpoint_hash);
  }
  std::vector<std::string> cases;
  for (const std::string& list : flags.case_names) {
    for (std::string& name : split_list(list)) {
      cases.push_back(std::move(name));
    }
  }
  const CheckedWeights weights(*checkpoint.weights, manifest);
  std::optional<gpu::DequantisedSource> dequantised;
  if (weights.config().quantization && manifest.gemm != "fp8") {
    dequantised.emplace(weights, manifest.profile == "fp16" ? model::DType::kF16 : model::DType::kBF16);
  }
  const model::WeightSource& engine_weights =
      dequantised ? *dequantised : static_cast<const model::WeightSource&>(weights);
  const auto gathered = flags.device.device.empty() ? read_ranks(flags, weights.config(), manifest.cases)
                                                    : run_device(flags, engine_weights, manifest, cases);
  const golden::Dump& dump = gathered.dump;
  const auto rules = rules_of(mode_of(manifest));
  const golden::CompareOptions options{.cases = cases,
                                       .strict = flags.strict,
                                       .pin_routing = parse_pin(flags.pin_routing),
                                       .with_oracle_ratio = flags.with_oracle_ratio,
                                       .on_case = [](const std::string& name) { show_progress("comparing " + name); }};
  auto verdict =
      golden::compare(weights.config(), golden, dump, options, [&](const model::Workload& workload, double num_sigmas) {
        return std::make_unique<ReferenceRecompute>(weights, rules, workload, num_sigmas, flags.num_threads);
      });
  golden::assign_ranks(gathered, verdict);
  clear_progress();
  if (!flags.junit.empty()) {
    write_text(flags.junit, golden::to_junit(verdict));
  }
  if (flags.json) {
    fmt::print("{}\n", golden::to_json(verdict));
  } else {
    print_verdict(verdict, dump);
    if (const auto* first = verdict.first_divergence(); first != nullptr && !flags.device.device.empty()) {
      const auto form = form_of(manifest.cases, first->case_name);
      fmt::print("  computed by kernel: {}\n", gpu::kernel_of(engine_weights.config(), form, first->op));
      if (const auto others = gpu::kernels_in_front_of(engine_weights.config(), form, first->op); !others.empty()) {
        fmt::print("  from what no op shows, by kernel: {}\n", fmt::join(others, ", "));
      }
    }
  }
  switch (verdict.outcome) {
    case golden::Verdict::Outcome::kPass: return kExitOk;
    case golden::Verdict::Outcome::kFail: return kExitCheckFailed;
    case golden::Verdict::Outcome::kUndecided: return kExitBadInput;
  }
  return kExitBadInput;
}

// A fault that the emulated device found is a failure, like a tensor that diverged.
int run_verify_or_fault(const VerifyFlags& flags) {
  try {
    return run_verify(flags);
  } catch (const gpu::emulation::Fault& fault) {
    clear_progress();
    fmt::print("FAULT {}\nFAIL on device {}\n", fault.what(), flags.device.device);
    return kExitCheckFailed;
  }
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  CLI::App app(
      "Verifies a DeepSeek-V3 forward pass, a dump's or our own CUDA implementation's: every op recomputed from its "
      "own inputs.",
      "dsv3-verify");
  tools::describe(app,
                  "Examples:\n"
                  "  dsv3-verify --golden g.safetensors --checkpoint DIR --against dump.safetensors --format v32\n"
                  "  dsv3-verify --golden g.safetensors --against mine.safetensors --case p7 --json\n"
                  "  dsv3-verify --golden g.safetensors --device emulated --order random:7 --races\n"
                  "  dsv3-verify score\n"
                  "  dsv3-verify op linear.safetensors --output mine.npy\n"
                  "Exit codes: 0 pass, 1 fail, 2 undecided, or bad usage or input.");
  tools::VerifyFlags flags;
  app.add_option("--golden", flags.golden, "golden file that dsv3-golden recorded (required)");
  app.add_option("--checkpoint",
                 flags.checkpoint,
                 "directory or synthetic:NAME[?seed=N] (default: the one the golden file names)");
  app.add_option("--against", flags.against, "dump to judge: a .safetensors, .npy or .pt file, or a directory of them");
  app.add_option(
         "--device", flags.device.device, "judge our own CUDA implementation instead: emulated (on this CPU) or cuda")
      ->check(CLI::IsMember({"emulated", "cuda"}));
  app.add_option(
         "--order", flags.device.order, "of threads and blocks of an emulated device: forward, reverse or random:SEED")
      ->capture_default_str();
  app.add_option(
      "--kernel-fault",
      flags.kernel_fault,
      "plant a fault in a kernel of the emulated device: k-combine-barrier (a race), k-rms-norm-count, k-swiglu-sign");
  app.add_option("--kv", flags.kv, "latent cache of the device: bf16 (profile fp16: fp16) or fp8 (default: not fp8)")
      ->check(CLI::IsMember({"bf16", "fp16", "fp8"}));
  app.add_flag(
      "--races", flags.device.races, "an emulated device checks every access of every kernel for races; slower");
  app.add_option("--format",
                 flags.format,
                 "names in the dump: " + fmt::format("{}", fmt::join(golden::known_formats(), ", ")) +
                     ", or a map file NAME.json")
      ->capture_default_str();
  app.add_option("--case", flags.case_names, "judge only these cases (repeat, or separate by commas)");
  app.add_flag("--json", flags.json, "machine-readable verdict");
  app.add_option("--junit", flags.junit, "write a JUnit report here");
  app.add_option(
      "--layout",
      flags.layout,
      "--against is a directory with the files of all ranks (rank0 in their names): tp8, ep8, dp8ep8, tp4dp2ep8, ...");
  tools::add_layout_options(app, flags.ranks);
  app.add_option("--pin-routing", flags.pin_routing, "take the dump's routing as given, unjudged: ids or ids+weights");
  app.add_flag("--strict", flags.strict, "a legal variant or a routing flip is a failure too");
  app.add_flag("--oracle-ratio",
               flags.with_oracle_ratio,
               "of each op: error of the dump over error of the profile's own bits, both against exact arithmetic");
  app.add_option("--threads", flags.num_threads, "threads")->check(CLI::Range(1, 1024));
  tools::ScoreFlags score_flags{.num_threads = tools::default_threads()};
  auto* score =
      app.add_subcommand("score", "judge every planted fault and many legal runs, beside the figures that others use");
  tools::add_score(*score, score_flags);
  tools::OpVerifyFlags op_flags;
  auto* op_command = app.add_subcommand("op", "judge what a kernel gave against an op pack of dsv3-golden op");
  tools::add_op_verify(*op_command, op_flags);
  tools::TensorCoreFlags tensor_core_flags;
  auto* tensor_core =
      app.add_subcommand("tensor-core", "hold vectors of a tensor core against a recipe, or find the step they follow");
  tools::add_tensor_core(*tensor_core, tensor_core_flags);
  std::string listed_format;
  auto* list_required = app.add_subcommand("list-required", "what to dump, in the names of a format");
  tools::add_list_required(*list_required, listed_format);
  return tools::run_main(app, argc, argv, [&] {
    if (list_required->parsed()) {
      return tools::run_list_required(listed_format);
    }
    if (op_command->parsed()) {
      return tools::run_op_verify(op_flags);
    }
    if (tensor_core->parsed()) {
      return tools::run_tensor_core(tensor_core_flags);
    }
    return score->parsed() ? tools::run_score(score_flags) : tools::run_verify_or_fault(flags);
  });
}
