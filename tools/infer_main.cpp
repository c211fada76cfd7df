// dsv3-infer: text in, text out.
#include "tools/cli.hpp"
#include "tools/infer/run.hpp"
#include "tools/text_commands.hpp"

int main(int argc, char** argv) {
  CLI::App app(
      "Continues text with a DeepSeek-V3 checkpoint, on the CPU reference or on our CUDA implementation; the "
      "subcommands handle text "
      "alone.",
      "dsv3-infer");
  tools::describe(
      app,
      "Examples:\n"
      "  dsv3-infer --checkpoint golden/data/mini/checkpoint --prompt 'And it came to pass'\n"
      "  dsv3-infer --checkpoint DIR --prompt 'Why?' --chat --temperature 0.6 --top-p 0.95 --mtp 1 --stats json\n"
      "  dsv3-infer --checkpoint DIR --batch prompts.jsonl --max-new-tokens 32 --trace-routing routing.csv\n"
      "  dsv3-infer --checkpoint synthetic:nano --prompt-ids 1,2,3 --max-new-tokens 8\n"
      "  dsv3-infer --checkpoint DIR --batch prompts.jsonl --device emulated --max-batch 4 --mtp 1 --trace ops.json\n"
      "Exit codes: 0 ok, 2 bad usage or input.");
  app.require_subcommand(0, 1);
  tools::InferFlags flags;
  tools::add_infer_options(app, flags);
  const tools::TextCommands text(app);
  return tools::run_main(app, argc, argv, [&] { return text.parsed() ? text.run() : tools::run_infer(flags); });
}
