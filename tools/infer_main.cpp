// dsv3-infer: text in, text out.
#include "tools/cli.hpp"
#include "tools/text_commands.hpp"

int main(int argc, char** argv) {
  CLI::App app("Runs the model on text; its subcommands handle text alone.", "dsv3-infer");
  tools::describe(app, "Exit codes: 0 ok, 2 bad usage or input.");
  app.require_subcommand(1);
  const tools::TextCommands text(app);
  return tools::run_main(app, argc, argv, [&] { return text.run(); });
}
