// Everything that a dump's file or directory holds, under the names its writer gave, whatever the kind of file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/tensor_view.hpp"

namespace golden {

struct DumpTensor {
  std::string step = {};   // a case's name, or the number of the engine's step; empty: not said
  std::string name = {};   // module path or op
  std::string shown = {};  // what a message calls it: the file and the name in it
  model::TensorView tensor = {};
};

// Reads a .safetensors, .npy or .pt file, or all of them in a directory and below it (other files are left alone):
//   names "<case>/<op>" inside a file, files <case>/<op>.npy and <case>__<op>.npy (.pt likewise), or a file <case> of many names;
//   pass3, step_3 and 3 in place of the case stand for step 3;
//   SGLang's dumper: key=value files joined by ___, with name, step (forward_pass_id, curr_step) and maybe layer_id. A name of a
//   hooked module loses "non_intrusive__" and ".output"; ".output.1" becomes "[1]" and ".inputs.0" becomes ".in[0]";
//   SGLang's forward hook: Pass00003.pt. What it hooks above the model (logits) it writes one pass late, which is put right.
// Throws InputError: nothing to read, an unreadable file, files of several ranks when none is asked for.
// `rank`: only the files of that rank of a directory.
std::vector<DumpTensor> read_dump_files(const std::filesystem::path& path, std::optional<int64_t> rank = {});

// The ranks that files of a directory, and below it, belong to: by their names, or the folders they lie in (rank3, rank=3, Rank3).
// Files of no rank are passed over. Throws InputError when there are no files.
std::set<int64_t> ranks_of_files(const std::filesystem::path& directory);

}  // namespace golden
