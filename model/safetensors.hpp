// Safetensors files: a memory-mapped reader that trusts nothing in the header, and a writer that never leaves half a file.
// Source: huggingface/safetensors format description (8-byte little-endian header length, JSON header, data).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/tensor_view.hpp"

namespace model {

struct SafetensorsFile {
  std::filesystem::path path;
  std::map<std::string, TensorView> tensors;  // views into the mapping, which they keep alive
  std::map<std::string, std::string> metadata;
  std::string header;  // the JSON text, for hashing
};

// Maps and checks the file. Throws InputError (one line: file, tensor, what was expected) when it is missing, shorter than its
// header says, the header is absurdly long, not JSON, too deeply nested, repeats a name, has offsets that are not integers, are
// negative, overlap, leave gaps or do not fit dtype and shape.
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// Writes to a temporary file beside `path`, then renames. Tensors are laid out in the given order, 8-byte aligned header.
// Throws InputError if the place cannot be written.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace model
