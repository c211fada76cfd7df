// Reading dumps that other people's code wrote, under our names, shapes and layouts (docs/contracts.md, op table).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "golden/cases.hpp"
#include "golden/formats/name_table.hpp"
#include "model/config.hpp"
#include "model/tensor_view.hpp"

namespace golden {

struct Dump {
  std::map<std::string, model::TensorView> tensors;  // "<case>/<op>", flattened to [tokens, ...], our layouts
  std::vector<std::string> unused;                   // names of the file that were not understood or not needed
};

// "dsv3", "v32", "official", "hf", and the maps that are part of the program (golden/maps).
std::vector<std::string> known_formats();

// The names of a format other than dsv3, or of a map file (any name that ends with .json). Throws InputError for an unknown one.
NameMap name_map(std::string_view format);

// Reads a dump: a file or a directory, whose kinds and names golden/dump_files.hpp lists. Formats:
//   dsv3  our own names (a golden file, or anybody's safetensors with <case>/<op> names), taken without looking at shapes; hashes
//         of a manifest are not checked either: what is asked of a dump is whether its values are right
//   v32   module paths of DeepSeek-V3.2-Exp inference (and of DeepSeek-V3 inference)
//         (official is another name for it)
//   hf    module paths of transformers' DeepseekV3ForCausalLM: half-split rotations are permuted to interleaved pairs
//   sglang, vllm, NAME.json   map files, docs/formats.md
// Batch dimensions are flattened. final_norm and logits hold the rows of Case::rows, whether the file holds those or all of them.
// kv_b of a decode step holds the rows the dump has: all keys (hf) or the new tokens (V3's naive cache). Ids become I32 and keep
// their order, values keep the dtype of the file; a layer output that V3.2 keeps as a pair is its F32 sum. A tensor of an unknown
// case, or of an op that the config's model does not have, is unused.
// Throws InputError: unknown format, unreadable file, a known name with an impossible shape or dtype.
// shard_rank: only what that rank wrote; shapes are held against the ops after the ranks are joined (ranks.hpp).
Dump read_dump(const std::filesystem::path& path,
               std::string_view format,
               const model::ModelConfig& config,
               const std::vector<Case>& cases,
               std::optional<int64_t> shard_rank = {});

}  // namespace golden
