// Vectors of tensor cores, measured or computed: read from CSV, and held against a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/tensor_core/recipe.hpp"

namespace reference::tensor_core {

// d = sum a_k b_k + c, as somebody's unit computed it. Codes of the operand format and of the result format.
struct Vector {
  std::vector<uint32_t> a;  // [K]
  std::vector<uint32_t> b;  // [K]
  uint32_t c = 0;
  uint32_t d = 0;
};

struct VectorSet {
  Format format = Format::kBf16;
  Format out = Format::kFp32;
  std::vector<Vector> rows;
};

// A CSV file with a header line and the columns a..., b..., c..., d... in any order, named a_hex or a, c_fp32_hex, c_hex or c, and so
// on; other columns are ignored. a and b hold K codes one after the other, k ascending (2, 4 or, for TF32, 8 digits each); c and d
// hold one FP32 number (8 digits) or one FP16 number (4 digits), the same for the whole file. Digits in either case, 0x and spaces
// allowed. Throws InputError naming file and line.
VectorSet read_vectors(const std::string& path, Format format);

struct Mismatch {
  size_t row_idx = 0;  // 0 is the first row under the header
  uint32_t got = 0;
  uint32_t expected = 0;
};
struct Agreement {
  const Path* path = nullptr;
  int64_t num_mismatches = 0;
  std::optional<Mismatch> first;
};
Agreement check_path(const VectorSet& set, const Path& path);
// Every row the same bits: stops at the first that is not.
bool agrees(const VectorSet& set, const Path& path);

}  // namespace reference::tensor_core
