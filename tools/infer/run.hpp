// dsv3-infer without a subcommand: runs the model on prompts and prints what it generates.
#pragma once

#include "tools/infer/flags.hpp"

namespace tools {

// Text (or, without a tokenizer, ids) goes to stdout as it comes; with --batch, --json or --logprobs a JSON object for each request at
// the end. Throws InputError, before anything is printed, for whatever is wrong with the options. Returns the exit code.
int run_infer(InferFlags flags);

}  // namespace tools
