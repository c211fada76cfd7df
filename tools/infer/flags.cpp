#include "tools/infer/flags.hpp"

#include "tools/cli.hpp"

namespace tools {
namespace {

void add_input(CLI::App& app, InferFlags& flags) {
  app.add_option("--checkpoint",
                 flags.checkpoint,
                 "directory (config.json, safetensors, tokenizer.json), or synthetic:NAME[?seed=N]");
  app.add_option("--prompt", flags.prompt, "text to continue");
  app.add_option("--prompt-ids", flags.prompt_ids, "token ids to continue, comma separated");
  app.add_option("--prompt-file", flags.prompt_file, "file with the text to continue");
  app.add_option("--batch",
                 flags.batch_file,
                 "JSON lines with prompt, ids or messages, and max_new_tokens if wished; prints JSON lines");
  app.add_flag("--chat", flags.chat, "the prompt is a user's message in the checkpoint's chat format");
  app.add_flag("--thinking", flags.thinking, "with --chat or messages: let formats that have the choice think first");
}

void add_numerics(CLI::App& app, InferFlags& flags) {
  app.add_option("--mode", flags.mode.mode, kModeHelp)->capture_default_str();
  app.add_option("--profile", flags.mode.profile, "profile of mode published: v32, v3-demo, hf or fp16")
      ->capture_default_str();
  app.add_option("--gemm", flags.mode.gemm, "fp8 or bf16 (profile fp16: fp8 or fp16; default: what the checkpoint is)");
  app.add_option("--scale", flags.mode.scale, "activation scales: fp32 or ue8m0 (default: the checkpoint's)");
  app.add_option("--attention",
                 flags.mode.attention,
                 "naive, absorbed, or by-length: prefill naive, decoding absorbed (default: by the profile)");
  app.add_option(
         "--device",
         flags.device,
         "cpu: the reference; emulated: our CUDA implementation, run on this CPU; cuda; auto: cuda if there is one, "
         "else cpu")
      ->check(CLI::IsMember({"auto", "cpu", "emulated", "cuda"}))
      ->capture_default_str();
  app.add_option("--threads", flags.num_threads, "threads; they never change a token")->check(CLI::Range(1, 1024));
}

void add_device(CLI::App& app, InferFlags& flags) {
  app.add_option("--max-batch", flags.max_batch, "emulated, cuda: requests that run at once; the others wait")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--graphs", flags.graphs, "emulated, cuda: capture decoding steps as graphs, on or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  app.add_option(
         "--kv", flags.kv, "emulated, cuda: the latent cache, bf16 (profile fp16: fp16) or fp8 (default: not fp8)")
      ->check(CLI::IsMember({"bf16", "fp16", "fp8"}));
  add_layout_options(app, flags.layout);
  app.add_option(
         "--micro-batches",
         flags.num_micro_batches,
         "emulated, cuda: that a step's requests are split into, so that the stages of --pp work at the same time")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str();
  app.add_option(
         "--comm",
         flags.comm,
         "what ranks are: threads of this process, or mpi: processes (start with mpirun); nccl: GPUs of either, with "
         "--device cuda")
      ->check(CLI::IsMember({"threads", "mpi", "nccl"}))
      ->capture_default_str();
}

void add_sampling(CLI::App& app, InferFlags& flags) {
  model::Sampling& sampling = flags.sampling;
  app.add_option("--max-new-tokens", flags.max_new_tokens, "default 128, or what the model's positions leave")
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--temperature", sampling.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "keep the k likeliest tokens; 0: all")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "keep the likeliest tokens that reach this probability together")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "keep tokens with this share of the largest probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--repetition-penalty", sampling.repetition_penalty, "divides logits of tokens in prompt and output")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  app.add_option("--presence-penalty", sampling.presence_penalty, "subtracted from logits of tokens in the output")
      ->check(CLI::Range(-1e6, 1e6))
      ->capture_default_str();
  app.add_option("--frequency-penalty", sampling.frequency_penalty, "likewise, for each time")
      ->check(CLI::Range(-1e6, 1e6))
      ->capture_default_str();
  add_seed(app, sampling.seed, "of the draws; request, position and seed decide each");
  app.add_option("--stop", flags.stop, "end before this text (repeat for several)");
  app.add_option("--stop-ids", flags.stop_ids, "end after one of these token ids, comma separated");
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on after the end-of-sequence token");
}

}  // namespace

void add_infer_options(CLI::App& app, InferFlags& flags) {
  add_input(app, flags);
  add_numerics(app, flags);
  add_sampling(app, flags);
  app.add_option(
         "--mtp", flags.num_drafts, "draft this many tokens a step with the MTP layers; they never change a token")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--chunk", flags.chunk_len, "prompt tokens in one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option(
         "--page-size", flags.page_rows, "positions in a page of the latent cache; 0: each sequence in one piece")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--logprobs",
                 flags.num_logprobs,
                 "print JSON with the log-probabilities of this many likeliest tokens at each place")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_flag("--json", flags.json, "print JSON in place of text");
  app.add_option("--stats", flags.stats, "json: counts and times, last line of stderr")->check(CLI::IsMember({"json"}));
  app.add_option("--trace-routing", flags.routing_file, "write experts and weights of every token and layer as CSV");
  app.add_option(
      "--trace",
      flags.trace_file,
      "write the time of every op: op records (*.csv, docs/op-records.md), or of a device also Chrome's trace format "
      "(*.json)");
  add_device(app, flags);
}

}  // namespace tools
