// Golden files: tensors named <case>/<op> in one safetensors file, with a JSON manifest in its metadata. docs/golden-format.md.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "golden/cases.hpp"
#include "model/tensor_view.hpp"

namespace golden {

// What is left of a tensor that a golden file does not hold whole.
struct Reduced {
  std::string dtype;  // "BF16"
  model::Shape shape;
  std::string hash;  // XXH3-64 of the bytes it had

  bool operator==(const Reduced&) const = default;
};

// Elements of a sampled tensor: at most this many, at places that follow from the tensor's size alone. Stored under
// "<case>/<op>.sample", shape [count].
inline constexpr int64_t kNumSamples = 256;
inline constexpr const char* kSampleSuffix = ".sample";
std::vector<int64_t> sample_places(int64_t num_elements);

// How the tensors were made. Every field is written into the file; unknown fields of a newer file are ignored.
struct Manifest {
  std::string mode;                          // "exact", "published", "fast", a recipe's name, or "arithmetic:FILE"
  std::string arithmetic = {};               // the text of that file, else empty
  std::string profile;                       // "v32", empty for exact
  std::string gemm;                          // "fp8" or "bf16"
  std::string scale;                         // "fp32" or "ue8m0"
  std::string attention;                     // "naive", "absorbed" or "by-length"
  std::map<std::string, std::string> rules;  // op kind -> rule, in words: what the profile and flags amount to
  std::string checkpoint;                    // the argument that named it; informative
  std::string checkpoint_hash;               // hash of config and shard headers
  std::map<std::string, std::string> weight_hashes;  // catalogue name -> XXH3-64 of its bytes, for each tensor read
  std::map<std::string, std::string> tensor_hashes;  // <case>/<op> -> XXH3-64 of its bytes
  std::map<std::string, Reduced> reduced = {};       // <case>/<op> -> of which only the hash, or a sample too, was kept
  std::vector<Case> cases;                           // names, token ids, stored rows, MTP tokens
  std::vector<std::string> ops;  // globs that chose what was stored; empty: everything but optional ops
  std::string fault;             // id of a planted fault, normally empty
  std::string commit;
  std::string version;
};

struct GoldenFile {
  Manifest manifest;
  std::map<std::string, model::TensorView> tensors;  // "<case>/<op>"
};

// Throws InputError: not safetensors, no manifest, a format version this program cannot read, a tensor whose bytes do not match
// its hash.
GoldenFile read_golden(const std::filesystem::path& path);
// Fills in tensor_hashes. Throws InputError if the place cannot be written.
void write_golden(const std::filesystem::path& path, GoldenFile golden);

// XXH3-64 of the bytes, 16 hex digits.
std::string content_hash(const model::TensorView& tensor);

}  // namespace golden
