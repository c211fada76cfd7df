#include "tools/infer/run.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "gpu/engine/dequantised_source.hpp"
#include "model/atomic_file.hpp"
#include "model/config_hash.hpp"
#include "model/op_record.hpp"
#include "reference/generate/generator.hpp"
#include "reference/simd/kernels.hpp"
#include "text/stream_decoder.hpp"
#include "tools/bench/machine.hpp"
#include "tools/device/open.hpp"
#include "tools/infer/device_run.hpp"
#include "tools/infer/rank_run.hpp"
#include "tools/infer/requests.hpp"
#include "tools/infer/routing_trace.hpp"
#include "tools/infer/stop_strings.hpp"
#include "tools/op_trace.hpp"
#include "tools/prompt_text.hpp"
#include "version.hpp"

namespace tools {
namespace {

using nlohmann::ordered_json;

// Shows a generation to several probes.
class Probes : public reference::StepProbe {
 public:
  void add(reference::StepProbe& probe) { probes_.push_back(&probe); }
  // Null when nobody watches.
  reference::StepProbe* get() { return probes_.empty() ? nullptr : this; }

  void enter_step(std::vector<reference::RowOrigin> rows) override {
    for (reference::StepProbe* probe : probes_) {
      probe->enter_step(rows);
    }
  }
  [[nodiscard]] bool wants(const model::Op& op) const override {
    return std::ranges::any_of(probes_, [&](const auto* probe) { return probe->wants(op); });
  }
  void see(const model::Op& op, const model::TensorView& value) override {
    for (reference::StepProbe* probe : probes_) {
      probe->see(op, value);
    }
  }

 private:
  std::vector<reference::StepProbe*> probes_;
};

void check_cpu_trace(const std::string& path) {
  if (!path.ends_with(".csv")) {
    model::throw_input_error("--trace {}: expected a name that ends with .csv (op records) for --device cpu", path);
  }
  const model::AtomicFile can_be_written(path);
}

void write_cpu_trace(const InferFlags& flags, const model::ModelConfig& config, const OpTrace& trace) {
  model::write_op_records(
      flags.trace_file,
      {.header = {"model=" + flags.checkpoint,
                  "gpus=0",
                  fmt::format("engine=CPU reference, {}, {} threads",
                              reference::simd::level_name(reference::simd::kernels().level),
                              flags.num_threads),
                  "times: wall time of the CPU reference between two results, median over steps"},
       .records = trace.records(
           config, {.source = model::RecordSource::kReference, .device = cpu_name(), .commit = DSV3_COMMIT})});
}

// What one request has produced so far.
class Output {
 public:
  Output(const std::optional<text::Tokenizer>& tokenizer, const std::vector<std::string>& stop) : stop_(stop) {
    if (tokenizer) {
      decoder_.emplace(*tokenizer, text::SpecialTokens::kSkip);
    }
  }

  // Returns what may be shown now; without a tokenizer the id.
  std::string add(const reference::GeneratedToken& token) {
    tokens_.push_back(token);
    if (!decoder_) {
      return fmt::format("{}{}", tokens_.size() == 1 ? "" : ",", token.id);
    }
    return keep(stop_.add(decoder_->add(token.id)));
  }
  std::string finish() {
    return decoder_ && !stop_.found() ? keep(stop_.add(decoder_->finish()) + stop_.finish()) : std::string();
  }
  [[nodiscard]] bool stopped() const { return stop_.found(); }

  [[nodiscard]] std::vector<int32_t> ids() const {
    std::vector<int32_t> ids;
    for (const auto& token : tokens_) {
      ids.push_back(token.id);
    }
    return ids;
  }

  // With drafts, what was drafted for each place; null where nothing was.
  [[nodiscard]] ordered_json json(size_t request,
                                  const std::vector<int32_t>& prompt,
                                  reference::FinishReason reason,
                                  const InferFlags& flags) const {
    ordered_json object{{"request", request}, {"prompt_ids", prompt}, {"ids", ids()}};
    if (decoder_) {
      object["text"] = text_;
    }
    object["finish_reason"] = reason == reference::FinishReason::kStop ? "stop" : "length";
    if (flags.num_drafts > 0) {
      object["mtp_drafts"] = ordered_json::array();
      for (const auto& token : tokens_) {
        object["mtp_drafts"].push_back(token.draft ? ordered_json(*token.draft) : ordered_json(nullptr));
      }
    }
    if (flags.num_logprobs > 0) {
      object["logprobs"] = ordered_json::array();
      for (const auto& token : tokens_) {
        object["logprobs"].push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", token.top}});
      }
    }
    return object;
  }

 private:
  std::string keep(std::string text) {
    text_ += text;
    return text;
  }

  std::optional<text::StreamDecoder> decoder_;
  StopStrings stop_;
  std::vector<reference::GeneratedToken> tokens_;
  std::string text_;
};

void check_flags(const InferFlags& flags) {
  if (flags.checkpoint.empty()) {
    model::throw_input_error("--checkpoint is missing: a directory, or synthetic:NAME");
  }
  const auto num_inputs = !flags.prompt_ids.empty() + !flags.prompt_file.empty() + !flags.batch_file.empty();
  if (num_inputs + !flags.prompt.empty() > 1) {
    model::throw_input_error("give one of --prompt, --prompt-ids, --prompt-file and --batch");
  }
  if (num_inputs + !flags.prompt.empty() == 0) {
    model::throw_input_error("the prompt is empty: give --prompt, --prompt-ids, --prompt-file or --batch");
  }
  if (flags.chat && !flags.prompt_ids.empty()) {
    model::throw_input_error("--chat: token ids are fed as they are; give --prompt, --prompt-file or --batch");
  }
  if (flags.thinking && !flags.chat && flags.batch_file.empty()) {
    model::throw_input_error("--thinking: a plain prompt has no chat format; add --chat");
  }
  const model::Sampling& s = flags.sampling;
  for (const double value :
       {s.temperature, s.top_p, s.min_p, s.repetition_penalty, s.presence_penalty, s.frequency_penalty}) {
    if (!std::isfinite(value)) {
      model::throw_input_error("sampling options must be finite numbers, not {}", value);
    }
  }
}

// As many prompt tokens as a step's results leave memory for: queries are held as codes and as floats, probabilities in FP32.
// No bit depends on it.
int64_t tokens_with_room(const model::ModelConfig& config, const std::vector<reference::Request>& requests) {
  constexpr int64_t kRoomBytes = int64_t{64} << 20;
  int64_t num_keys = 1;
  for (const auto& request : requests) {
    num_keys = std::max(num_keys, static_cast<int64_t>(request.prompt.size()));
  }
  const int64_t token_bytes = config.num_attention_heads * (16 * config.qk_head_dim() + 4 * num_keys);
  return std::max<int64_t>(kRoomBytes / token_bytes, 16);
}

reference::GeneratorOptions options_of(const InferFlags& flags,
                                       const model::ModelConfig& config,
                                       const std::vector<reference::Request>& requests) {
  using model::AttentionForm;
  reference::GeneratorOptions options{.chunk_len = std::min(flags.chunk_len, tokens_with_room(config, requests)),
                                      .num_drafts = flags.num_drafts,
                                      .num_logprobs = flags.num_logprobs,
                                      .page_rows = flags.page_rows};
  options.prefill_form = flags.mode.attention == "absorbed" ? AttentionForm::kAbsorbed : AttentionForm::kExpanded;
  options.decode_form = flags.mode.attention == "naive" ? AttentionForm::kExpanded : AttentionForm::kAbsorbed;
  for (const auto& request : requests) {
    if (flags.page_rows == 0) {
      options.page_rows =
          std::max(options.page_rows, static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens);
    }
  }
  return options;
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;  // Linux counts KiB
}

ordered_json stats_json(const reference::GenerationStats& stats, const std::vector<Output>& outputs, bool batch) {
  ordered_json ids = ordered_json::array();
  for (const Output& output : outputs) {
    ids.push_back(output.ids());
  }
  const auto share = [](int64_t part, int64_t whole) {
    return whole == 0 ? ordered_json(nullptr) : ordered_json(static_cast<double>(part) / static_cast<double>(whole));
  };
  const auto sum = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  ordered_json by_place = ordered_json::array();
  for (size_t place = 0; place < stats.num_drafted.size(); ++place) {
    by_place.push_back(share(stats.num_accepted[place], stats.num_drafted[place]));
  }
  // The first token of each request comes out of prefill.
  const auto num_decoded = static_cast<double>(stats.num_new_tokens - static_cast<int64_t>(outputs.size()));
  return {{"tokens", stats.num_new_tokens},
          {"ids", batch ? ids : ids[0]},
          {"prompt_tokens", stats.num_prompt_tokens},
          {"prefill_s", stats.prefill_s},
          {"decode_s", stats.decode_s},
          {"tokens_per_s", num_decoded > 0 ? ordered_json(num_decoded / stats.decode_s) : ordered_json(nullptr)},
          {"mtp_accepted_frac", share(sum(stats.num_accepted), sum(stats.num_drafted))},
          {"mtp_accepted_by_position", by_place},
          {"peak_rss_bytes", peak_rss_bytes()}};
}

std::vector<int64_t> prompt_lens(const std::vector<reference::Request>& requests) {
  std::vector<int64_t> lens;
  for (const reference::Request& request : requests) {
    lens.push_back(static_cast<int64_t>(request.prompt.size()));
  }
  return lens;
}

void show(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace

int run_infer(InferFlags flags) {
  check_flags(flags);
  const auto checkpoint = open_checkpoint(flags.checkpoint);
  const model::ModelConfig& config = checkpoint.weights->config();
  flags.mode = resolved(flags.mode, config);
  if (flags.device == "auto") {
    flags.device = why_no_cuda().empty() ? "cuda" : "cpu";
  }
  if (flags.num_drafts > 0 && config.num_nextn_predict_layers == 0) {
    model::throw_input_error("--mtp {}: the model has no MTP layer (num_nextn_predict_layers 0)", flags.num_drafts);
  }
  const auto tokenizer = tokenizer_of(flags.checkpoint);
  if (!flags.stop.empty() && !tokenizer) {
    model::throw_input_error("--stop: {} has no tokenizer.json; give --stop-ids", flags.checkpoint);
  }
  const auto requests = requests_of(flags, config, tokenizer);
  const bool batch = !flags.batch_file.empty();
  const bool json = batch || flags.json || flags.num_logprobs > 0;
  std::vector<Output> outputs(requests.size(), Output(tokenizer, flags.stop));

  RoutingTrace routing(checkpoint.hash, prompt_lens(requests));
  OpTrace op_trace(prompt_lens(requests));
  Probes probes;
  std::optional<model::AtomicFile> routing_file;  // opened before the work: a place that cannot be written is said now
  if (!flags.routing_file.empty()) {
    routing_file.emplace(flags.routing_file);
    probes.add(routing);
  }
  const auto on_token = [&](size_t request, const reference::GeneratedToken& token) {
    const std::string text = outputs[request].add(token);
    if (!json) {
      show(text);
    }
    return !outputs[request].stopped();
  };
  std::vector<reference::FinishReason> reasons;
  reference::GenerationStats stats;
  if (flags.device == "cpu") {
    if (flags.comm != "threads" || layout_of(flags.layout, config).num_ranks() > 1) {
      model::throw_input_error("--device cpu: the reference is one rank; --device emulated runs several");
    }
    if (!flags.trace_file.empty()) {
      check_cpu_trace(flags.trace_file);
      probes.add(op_trace);
    }
    reference::Generator generator(
        *checkpoint.weights, rules_of(flags.mode), flags.num_threads, options_of(flags, config, requests));
    reasons = generator.run(requests, on_token, probes.get());
    stats = generator.stats();
    if (!flags.trace_file.empty()) {
      write_cpu_trace(flags, config, op_trace);
    }
  } else {
    check_device_flags(flags);
    std::optional<gpu::DequantisedSource> dequantised;
    if (config.quantization && flags.mode.gemm != "fp8") {
      dequantised.emplace(*checkpoint.weights, is_fp16(flags) ? model::DType::kF16 : model::DType::kBF16);
    }
    const model::WeightSource& weights = dequantised ? *dequantised : *checkpoint.weights;
    const bool on_ranks = has_ranks(flags, config);
    std::optional<DeviceTrace> trace;
    if (!flags.trace_file.empty()) {
      trace.emplace(flags.trace_file, weights.config(), model::config_hash(config));
    }
    std::optional<DeviceResult> result;
    if (!on_ranks) {
      result = run_on_device(flags, weights, requests, on_token, probes.get(), trace ? &*trace : nullptr);
    } else {
      const auto listen = [&] {
        const auto heard = std::make_shared<std::vector<Output>>(requests.size(), Output(tokenizer, flags.stop));
        return [heard](size_t request, const reference::GeneratedToken& token) {
          (*heard)[request].add(token);
          return !(*heard)[request].stopped();
        };
      };
      result = run_on_ranks(flags,
                            weights,
                            requests,
                            {.routing = routing_file ? &routing : nullptr, .times = trace ? &*trace : nullptr},
                            listen,
                            on_token);
      if (!result) {
        return kExitOk;  // the first rank is another process
      }
    }
    reasons = std::move(result->reasons);
    stats = std::move(result->stats);
    if (trace) {
      trace->write();
    }
  }
  for (size_t r = 0; r < outputs.size(); ++r) {
    const std::string rest = outputs[r].finish();
    if (json) {
      fmt::print("{}\n", outputs[r].json(r, requests[r].prompt, reasons[r], flags).dump());
    } else {
      show(rest + "\n");
    }
  }
  if (routing_file) {
    const std::string text = routing.text();
    routing_file->write(std::as_bytes(std::span(text)));
    routing_file->commit();
  }
  if (flags.stats == "json") {
    fmt::print(stderr, "{}\n", stats_json(stats, outputs, batch).dump());
  }
  return kExitOk;
}

}  // namespace tools
