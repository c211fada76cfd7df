// dsv3-golden: records golden tensors from the reference, and looks at golden files.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "golden/manifest_json.hpp"
#include "golden/metrics.hpp"
#include "golden/store.hpp"
#include "tools/cli.hpp"
#include "tools/export.hpp"
#include "tools/faults.hpp"
#include "tools/op_pack.hpp"
#include "tools/prompt_text.hpp"
#include "tools/record.hpp"
#include "tools/synthetic/argument.hpp"
#include "version.hpp"

namespace tools {
namespace {

using nlohmann::ordered_json;

struct RecordFlags {
  std::string checkpoint;
  std::string prompt;
  std::string prompt_ids;
  std::string cases_file;
  std::vector<std::string> case_names;
  ModeFlags mode;
  std::string layers;
  std::string ops;
  std::string store;
  std::string fault;
  std::string out;
  int64_t num_decode = 0;
  bool with_mtp = false;
  bool with_bounds = false;
  int num_threads = default_threads();
};

int64_t parse_number(const std::string& flag, const std::string& text, int64_t limit) {
  size_t end = 0;
  int64_t value = -1;
  try {
    value = std::stoll(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end != text.size() || text.empty() || value < 0 || value >= limit) {
    model::throw_input_error("{}: '{}' is not a number in [0, {})", flag, text, limit);
  }
  return value;
}

// "0-2,5" -> 0 1 2 5.
std::vector<int64_t> parse_layers(const std::string& text, int64_t num_layers) {
  std::vector<int64_t> layers;
  for (const std::string& item : split_list(text)) {
    const size_t dash = item.find('-');
    const int64_t first = parse_number("--layers", item.substr(0, dash), num_layers);
    const int64_t last =
        dash == std::string::npos ? first : parse_number("--layers", item.substr(dash + 1), num_layers);
    if (last < first) {
      model::throw_input_error("--layers: range {} runs backwards", item);
    }
    for (int64_t layer = first; layer <= last; ++layer) {
      layers.push_back(layer);
    }
  }
  return layers;
}

std::vector<std::string> joined_lists(const std::vector<std::string>& lists) {
  std::vector<std::string> items;
  for (const std::string& list : lists) {
    for (std::string& item : split_list(list)) {
      items.push_back(std::move(item));
    }
  }
  return items;
}

// Every token id is inside the vocabulary and every sequence fits the model's positions: said before hours of work.
void check_cases(const std::vector<golden::Case>& cases, int64_t num_decode, const model::ModelConfig& config) {
  for (const golden::Case& step : cases) {
    for (const auto& tokens : step.sequences) {
      for (const int32_t token : tokens) {
        if (token < 0 || token >= config.vocab_size) {
          model::throw_input_error(
              "case {}: token id {} is outside the vocabulary of {}", step.name, token, config.vocab_size);
        }
      }
    }
    for (const auto& [num_cached, num_new] : golden::sequence_steps(cases, step)) {
      const int64_t extra = step == cases.back() ? num_decode : 0;
      if (num_cached + num_new + extra > config.max_position_embeddings) {
        model::throw_input_error("case {}: {} positions, the model has {} (max_position_embeddings)",
                                 step.name,
                                 num_cached + num_new + extra,
                                 config.max_position_embeddings);
      }
    }
  }
}

RecordJob job_of(const RecordFlags& flags, const model::ModelConfig& config) {
  RecordJob job{.mode = resolved(flags.mode, config),
                .cases = {},
                .recorded = joined_lists(flags.case_names),
                .num_decode = flags.num_decode,
                .with_mtp = flags.with_mtp,
                .with_bounds = flags.with_bounds,
                .layers = parse_layers(flags.layers, config.num_hidden_layers + config.num_nextn_predict_layers),
                .ops = split_list(flags.ops),
                .store = golden::parse_store(flags.store, "--store"),
                .fault = flags.fault,
                .num_threads = flags.num_threads};
  if (!flags.prompt.empty()) {
    const auto tokenizer = tokenizer_of(flags.checkpoint);
    if (!tokenizer) {
      model::throw_input_error("--prompt: {} has no tokenizer.json; give --prompt-ids", flags.checkpoint);
    }
    job.cases = {golden::prompt_case(prompt_ids(*tokenizer, flags.prompt, "--prompt"))};
  } else if (!flags.prompt_ids.empty()) {
    std::vector<int32_t> ids;
    for (const std::string& id : split_list(flags.prompt_ids)) {
      ids.push_back(static_cast<int32_t>(parse_number("--prompt-ids", id, config.vocab_size)));
    }
    if (ids.empty()) {
      model::throw_input_error("--prompt-ids '{}': expected token ids separated by commas", flags.prompt_ids);
    }
    job.cases = {golden::prompt_case(std::move(ids))};
  } else {
    const auto all = golden::read_cases(flags.cases_file);
    job.cases = job.recorded.empty() ? all : golden::select_cases(all, job.recorded);
  }
  if (job.with_mtp && config.num_nextn_predict_layers == 0) {
    model::throw_input_error("--mtp: the model has no MTP layer (num_nextn_predict_layers 0)");
  }
  if (!job.fault.empty()) {
    find_fault(job.fault);
  }
  check_cases(job.cases, job.num_decode, config);
  return job;
}

// A recording of more multiply-adds than this can be interrupted and taken up again: some 10 s of a core.
constexpr double kWorthResuming = 1e11;

// Everything that decides what an op of the run computes.
std::string identity_of(const RecordFlags& flags, const RecordJob& job, const std::string& checkpoint_hash) {
  std::string cases;
  for (const golden::Case& step : job.cases) {
    cases += fmt::format("{} after {}: {} mtp {}; ", step.name, step.after, step.sequences, step.mtp_ids);
  }
  const ModeFlags& mode = job.mode;
  return fmt::format("{} {} {} {} {} {} {} fault {} mtp {} decode {} cases {} commit {}",
                     checkpoint_hash,
                     mode.mode,
                     mode.arithmetic,
                     mode.profile,
                     mode.gemm,
                     mode.scale,
                     mode.attention,
                     flags.fault,
                     flags.with_mtp,
                     flags.num_decode,
                     cases,
                     DSV3_COMMIT);
}

int run_record(const RecordFlags& flags) {
  if (!flags.prompt.empty() + !flags.prompt_ids.empty() + !flags.cases_file.empty() != 1) {
    model::throw_input_error("record: give one of --prompt, --prompt-ids and --cases");
  }
  const auto checkpoint = open_checkpoint(flags.checkpoint);
  auto job = job_of(flags, checkpoint.weights->config());
  job.show = show_progress;
  job.hashes_weights = checkpoint.hashes_weights;
  if (num_flops(checkpoint.weights->config(), job) > kWorthResuming) {
    job.journal = flags.out + ".journal";
    job.identity = identity_of(flags, job, checkpoint.hash);
  }
  auto golden = record(*checkpoint.weights, job);
  clear_progress();
  golden.manifest.checkpoint = flags.checkpoint;
  golden.manifest.checkpoint_hash = checkpoint.hash;
  golden.manifest.commit = DSV3_COMMIT;
  golden.manifest.version = DSV3_VERSION;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : golden.tensors) {
    bytes += static_cast<int64_t>(tensor.bytes.size());
  }
  const size_t num_tensors = golden.tensors.size();
  const size_t num_reduced = golden.manifest.reduced.size();
  golden::write_golden(flags.out, std::move(golden));
  fmt::print("recorded {} tensors ({:.1f} MB){} to {}\n",
             num_tensors,
             static_cast<double>(bytes) / 1e6,
             num_reduced == 0 ? "" : fmt::format(" and the hashes of {} others", num_reduced),
             flags.out);
  return kExitOk;
}

int run_list(const std::string& file, bool json) {
  const auto golden = golden::read_golden(file);
  ordered_json rows = ordered_json::array();
  for (const auto& [name, tensor] : golden.tensors) {
    if (json) {
      rows.push_back({{"name", name}, {"dtype", model::dtype_name(tensor.dtype)}, {"shape", tensor.shape}});
    } else {
      fmt::print("{:<48} {:<6} {}\n", name, model::dtype_name(tensor.dtype), model::shape_text(tensor.shape));
    }
  }
  if (json) {
    fmt::print("{}\n", rows.dump(1));
  }
  return kExitOk;
}

int run_show(const std::string& file, bool json) {
  const auto golden = golden::read_golden(file);
  const auto& m = golden.manifest;
  if (json) {
    fmt::print("{}\n", golden::manifest_text(m));
    return kExitOk;
  }
  const std::string profile =
      m.mode == "exact" ? "" : fmt::format(", profile {}, gemm {}, scales {}", m.profile, m.gemm, m.scale);
  fmt::print("mode        {}{}, attention {}\n", m.mode, profile, m.attention);
  fmt::print("checkpoint  {} (headers {}, {} tensors read)\n", m.checkpoint, m.checkpoint_hash, m.weight_hashes.size());
  fmt::print("made by     dsv3 {} ({})\n", m.version, m.commit);
  if (!m.fault.empty()) {
    fmt::print("fault       {}: {}\n", m.fault, find_fault(m.fault).description);
  }
  fmt::print("tensors     {}\ncases\n", golden.tensors.size());
  for (const auto& step : m.cases) {
    std::string text;
    for (const auto& tokens : step.sequences) {
      const size_t shown = std::min<size_t>(tokens.size(), 12);
      text += fmt::format(" [{}{}]",
                          fmt::join(tokens.begin(), tokens.begin() + static_cast<int64_t>(shown), " "),
                          shown < tokens.size() ? fmt::format(" ... {} tokens", tokens.size()) : "");
    }
    fmt::print("  {:<6}{}{}\n", step.name, step.after.empty() ? "" : " after " + step.after, text);
  }
  fmt::print("rules\n");
  for (const auto& [kind, rule] : m.rules) {
    fmt::print("  {:<10} {}\n", kind, rule);
  }
  return kExitOk;
}

int run_diff(const std::string& left_file, const std::string& right_file, bool json) {
  const auto left = golden::read_golden(left_file);
  const auto right = golden::read_golden(right_file);
  ordered_json rows = ordered_json::array();
  int64_t num_same = 0;
  int64_t num_different = 0;
  const auto say = [&](const std::string& name, const std::string& status, double cosine, double max_ulp) {
    ++num_different;
    if (json) {
      rows.push_back({{"name", name}, {"status", status}, {"cosine", cosine}, {"max_ulp", max_ulp}});
    } else {
      fmt::print("{:<48} {}\n",
                 name,
                 status == "differs" ? fmt::format("cosine {:.9f}, max {} ulp", cosine, max_ulp) : status);
    }
  };
  for (const auto& [name, tensor] : left.tensors) {
    const auto found = right.tensors.find(name);
    if (found == right.tensors.end()) {
      say(name, "only in " + left_file, 0, 0);
    } else if (found->second.shape != tensor.shape) {
      say(name, "shapes " + model::shape_text(tensor.shape) + " and " + model::shape_text(found->second.shape), 0, 0);
    } else if (found->second.dtype == tensor.dtype && std::ranges::equal(found->second.bytes, tensor.bytes)) {
      ++num_same;
    } else {
      const auto m = golden::compare_values(model::to_double(tensor), model::to_double(found->second), tensor.dtype);
      say(name, "differs", m.cosine, m.max_ulp);
    }
  }
  for (const auto& [name, tensor] : right.tensors) {
    if (!left.tensors.contains(name)) {
      say(name, "only in " + right_file, 0, 0);
    }
  }
  if (json) {
    fmt::print("{}\n", ordered_json{{"same", num_same}, {"different", num_different}, {"tensors", rows}}.dump(1));
  } else {
    fmt::print("{} tensors have the same bits, {} differ\n", num_same, num_different);
  }
  return num_different == 0 ? kExitOk : kExitCheckFailed;
}

int run_faults(bool json) {
  ordered_json rows = ordered_json::array();
  for (const Fault& fault : all_faults()) {
    if (json) {
      rows.push_back({{"id", fault.id},
                      {"op", fault.starts_at},
                      {"fixture", fault.fixture},
                      {"description", fault.description},
                      {"cases", ordered_json::parse(cases_text(fault.cases))}});
    } else {
      fmt::print("{:<7} {:<28} {:<24} {}\n", fault.id, fault.starts_at, fault.fixture, fault.description);
    }
  }
  if (json) {
    fmt::print("{}\n", rows.dump(1));
  }
  return kExitOk;
}

struct ExportFlags {
  std::string checkpoint;
  std::string out;
  std::string dtype = "stored";
};

int run_export(const ExportFlags& flags) {
  if (!synthetic::is_synthetic(flags.checkpoint)) {
    model::throw_input_error("export {}: expected synthetic:NAME or synthetic:NAME?seed=N", flags.checkpoint);
  }
  const auto weights = synthetic::open_synthetic(flags.checkpoint);
  show_progress("exporting " + flags.checkpoint);
  export_checkpoint(*weights, flags.out, flags.dtype == "bf16");
  clear_progress();
  fmt::print("exported {} to {}\n", flags.checkpoint, flags.out);
  return kExitOk;
}

struct TruncateFlags {
  std::string checkpoint;
  std::string out;
  int64_t num_layers = 0;
};

int run_truncate(const TruncateFlags& flags) {
  const auto checkpoint = open_checkpoint(flags.checkpoint);
  show_progress("writing " + flags.out);
  truncate_checkpoint(*checkpoint.weights, flags.num_layers, flags.checkpoint, flags.out);
  clear_progress();
  fmt::print("wrote the first {} layers of {} to {}\n", flags.num_layers, flags.checkpoint, flags.out);
  return kExitOk;
}

void add_truncate(CLI::App& app, TruncateFlags& flags) {
  app.add_option("--checkpoint", flags.checkpoint, "directory, or synthetic:NAME[?seed=N]")->required();
  app.add_option("--layers", flags.num_layers, "how many of its first layers")->required();
  app.add_option("--out", flags.out, "directory to create")->required();
}

void add_export(CLI::App& app, ExportFlags& flags) {
  app.add_option("checkpoint", flags.checkpoint, "synthetic:NAME or synthetic:NAME?seed=N")->required();
  app.add_option("--out", flags.out, "directory to create")->required();
  app.add_option("--dtype", flags.dtype, "stored, or bf16: FP8 weights times scales, rounded")
      ->check(CLI::IsMember({"stored", "bf16"}))
      ->capture_default_str();
}

void add_record(CLI::App& app, RecordFlags& flags) {
  app.add_option(
         "--checkpoint", flags.checkpoint, "directory (config.json and safetensors), or synthetic:NAME[?seed=N]")
      ->required();
  app.add_option("--prompt", flags.prompt, "text: one case, p<number of tokens>");
  app.add_option("--prompt-ids", flags.prompt_ids, "token ids, comma separated: one case, p<number of ids>");
  app.add_option("--cases", flags.cases_file, "JSON file of cases (prompts, batch2, decode, mtp)");
  app.add_option("--case", flags.case_names, "store only these cases of the file (repeat, or separate by commas)");
  app.add_option("--mode", flags.mode.mode, kModeHelp)->capture_default_str();
  app.add_option("--profile", flags.mode.profile, "profile of mode published: v32, v3-demo, hf or fp16")
      ->capture_default_str();
  app.add_option("--gemm", flags.mode.gemm, "fp8 or bf16 (profile fp16: fp8 or fp16; default: what the checkpoint is)");
  app.add_option("--scale", flags.mode.scale, "activation scales: fp32 or ue8m0 (default: the checkpoint's)");
  app.add_option("--attention", flags.mode.attention, "naive, absorbed or by-length (default: by the profile)");
  app.add_option("--decode", flags.num_decode, "greedy decode steps d0, d1, ... after the last case")
      ->check(CLI::Range(0, 100000));
  app.add_flag(
      "--bounds", flags.with_bounds, "store <case>/<op>.bound too: how far a legal result may lie from the value");
  app.add_flag("--mtp", flags.with_mtp, "run the MTP layers too (drafts from the cases file, else greedy)");
  app.add_option("--layers", flags.layers, "store only these layers, for example 0-2,5");
  app.add_option("--ops", flags.ops, "store only ops that match these globs, for example '*.moe.*,logits'");
  app.add_option(
      "--store",
      flags.store,
      "how much of them: values, hash or sample, with globs behind them: 'hash:*.moe.*,sample:*' (default: values)");
  app.add_option("--fault", flags.fault, "plant a fault (see dsv3-golden faults)");
  app.add_option("--threads", flags.num_threads, "threads; they never change a bit")->check(CLI::Range(1, 1024));
  app.add_option("--out", flags.out, "golden file to write")->required();
}

}  // namespace
}  // namespace tools

int main(int argc, char** argv) {
  CLI::App app("Records golden tensors of a DeepSeek-V3 checkpoint from the CPU reference, and looks at them.",
               "dsv3-golden");
  tools::describe(
      app,
      "Examples:\n"
      "  dsv3-golden record --checkpoint golden/data/mini/checkpoint --prompt-ids 0,34,262 --decode 4 --out "
      "g.safetensors\n"
      "  dsv3-golden record --checkpoint DIR --cases prompts.json --case p7,d0 --mode exact --out exact.safetensors\n"
      "  dsv3-golden show g.safetensors\n"
      "  dsv3-golden op linear --shape m=4,k=512,n=256 --out linear.safetensors\n"
      "Exit codes: 0 ok (diff: same bits), 1 diff found differences, 2 bad usage or input.");
  app.require_subcommand(1);
  tools::RecordFlags record;
  std::string file;
  std::string other_file;
  bool json = false;
  tools::add_record(*app.add_subcommand("record", "run the reference on cases and store every op's output"), record);
  tools::ExportFlags export_flags;
  auto* export_command = app.add_subcommand("export", "write a generated checkpoint as files that other engines read");
  tools::add_export(*export_command, export_flags);
  tools::TruncateFlags truncate_flags;
  auto* truncate = app.add_subcommand("truncate", "write the first layers of a checkpoint as a checkpoint");
  tools::add_truncate(*truncate, truncate_flags);
  tools::OpFlags op_flags;
  auto* op_command =
      app.add_subcommand("op", "write one op in isolation: inputs, weights, output and the bound of every element");
  tools::add_op(*op_command, op_flags);
  auto* list = app.add_subcommand("list", "names, formats and shapes of the tensors in a golden file");
  auto* show = app.add_subcommand("show", "the manifest: how a golden file was made");
  auto* diff = app.add_subcommand("diff", "compare two golden files bit by bit");
  auto* faults = app.add_subcommand("faults", "the faults that --fault can plant, with the op where each starts");
  for (auto* command : {list, show, diff}) {
    command->add_option("file", file, "golden file")->required();
  }
  diff->add_option("other", other_file, "golden file to hold it against")->required();
  for (auto* command : {list, show, diff, faults}) {
    command->add_flag("--json", json, "machine-readable output");
  }
  return tools::run_main(app, argc, argv, [&] {
    if (list->parsed()) {
      return tools::run_list(file, json);
    }
    if (show->parsed()) {
      return tools::run_show(file, json);
    }
    if (diff->parsed()) {
      return tools::run_diff(file, other_file, json);
    }
    if (export_command->parsed()) {
      return tools::run_export(export_flags);
    }
    if (truncate->parsed()) {
      return tools::run_truncate(truncate_flags);
    }
    if (op_command->parsed()) {
      return tools::run_op(op_flags);
    }
    return faults->parsed() ? tools::run_faults(json) : tools::run_record(record);
  });
}
