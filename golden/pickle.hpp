// Reads the data.pkl of a torch file without Python: a small stack machine that knows plain containers and how tensors are
// rebuilt. Nothing is imported or called; a name or an opcode outside the list ends the reading.
// Source: CPython's Lib/pickletools.py (opcodes), torch/_utils.py and torch/serialization.py (what torch.save puts into a file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/dtype.hpp"

namespace golden {

// A tensor as the pickle describes it: unchecked numbers and the key of its storage.
struct PickledTensor {
  std::string storage_key = {};
  model::DType dtype = model::DType::kF32;
  int64_t storage_len = 0;  // elements of dtype
  int64_t offset = 0;       // likewise
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
};

// Tensors with the way to them from the root: "" for a tensor alone, keys joined by '.', elements of a list as "[i]":
// {"a.b": (t, u)} gives "a.b[0]" and "a.b[1]". Other leaves (numbers, strings) are dropped.
// `origin` begins each message. Throws InputError: a global or opcode outside the list ("refuses to load os.system: ..."), broken
// or absurdly large or deep input.
std::vector<std::pair<std::string, PickledTensor>> read_pickle(std::span<const std::byte> bytes,
                                                               const std::string& origin);

}  // namespace golden
