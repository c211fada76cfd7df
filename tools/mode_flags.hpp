// The numerics flags that programs share, and the rules they stand for.
#pragma once

#include <string>

#include "model/config.hpp"
#include "reference/rules.hpp"

namespace tools {

// A numerics mode as the flags and the golden manifest spell it.
struct ModeFlags {
  // exact; published; fast; a recipe of linear_recipes.hpp: hopper, ampere, ada, blackwell, ...; arithmetic:FILE.json
  std::string mode = "published";
  std::string profile = "v32";  // v32, v3-demo, hf, fp16
  std::string gemm = {};        // fp8, bf16 (profile fp16: fp16); empty: what the checkpoint is
  std::string scale = {};       // fp32, ue8m0; empty: the checkpoint's scale_fmt, else fp32
  std::string attention =
      {};  // naive, absorbed, by-length; empty: naive for exact and hf, absorbed for v3-demo, by-length for v32 and fp16
  std::string arithmetic = {};  // text of the file that mode `arithmetic:FILE.json` names; resolved() reads it
};

// What --mode takes, for the help of programs.
inline constexpr const char* kModeHelp =
    "exact, published, fast, hopper, ampere, ada, blackwell, or arithmetic:FILE.json";

// Fills in the defaults that the checkpoint decides. Throws InputError for a value that is not listed above, and for an
// accelerator without a unit for the operands.
ModeFlags resolved(ModeFlags flags, const model::ModelConfig& config);
// The rules that resolved flags (or the flags of a manifest) stand for.
reference::Rules rules_of(const ModeFlags& flags);

}  // namespace tools
