// Reading dumps that other people's code wrote, under our names, shapes and layouts (docs/contracts.md, op table).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "golden/cases.hpp"
#include "model/config.hpp"
#include "model/tensor_view.hpp"

namespace golden {

struct Dump {
  std::map<std::string, model::TensorView> tensors;  // "<case>/<op>", flattened to [tokens, ...], our layouts
  std::vector<std::string> unused;                   // names of the file that were not understood or not needed
};

// "dsv3", "v32", "hf".
std::vector<std::string> known_formats();

// Reads a dump. Formats:
//   dsv3  our own names (a golden file, or anybody's safetensors with <case>/<op> names)
//   v32   module paths of DeepSeek-V3.2-Exp inference (and of DeepSeek-V3 inference)
//   hf    module paths of transformers' DeepseekV3ForCausalLM: half-split rotations are permuted to interleaved pairs
// Batch dimensions are flattened, rows named by Case::rows are accepted for final_norm and logits.
// Throws InputError: unknown format, unreadable file, a known name with an impossible shape or dtype.
Dump read_dump(const std::filesystem::path& path,
               std::string_view format,
               const model::ModelConfig& config,
               const std::vector<Case>& cases);

}  // namespace golden
