// Which steps an accelerator takes for a dot product: the instruction paths of each GPU generation as data, with how well each one is
// evidenced, and paths a user states (recipe_file.hpp). Docs: docs/numerics.md, section 7; docs/arithmetic.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/tensor_core/step.hpp"

namespace reference::tensor_core {

// How a dot product longer than one step runs.
enum class Chain {
  kSteps,  // steps in ascending k, each with the result of the one before as its accumulator, the first with c or zero
  // FP8 mma.sync where the unit has no FP8 mode, as ptxas 13.0 builds it for sm_90a and sm_100a. For each 32 products: operands
  // unpacked to FP16; one step over the products with k mod 4 in {0, 1} from zero, one over {2, 3} on top of it; then c + result, a
  // rounded FP32 addition. (The unpack instruction takes two bytes of each register, and a register holds four successive k.)
  kUnpackedPairs,
};

// How well a path is known.
enum class Evidence {
  kVectors,    // reproduces published vectors measured on hardware
  kAssembly,   // read off the machine code, steps as measured for the format it uses
  kModelCode,  // stated by one published model's code
  kUser,       // stated by a user's file
};
std::string_view evidence_text(Evidence evidence);

// What becomes of c, which is d's share of an earlier product.
enum class Accumulator {
  kIntoUnit,  // the first step's accumulator
  kIgnored,  // the unit starts from zero and c goes nowhere: wgmma with scale-d = 0, a promoted product's first instruction
  kAddedAfter,  // the unit starts from zero; c + result is a rounded FP32 addition
};

// "c in the step", "c not used", "c added in FP32"
std::string_view accumulator_text(Chain chain, Accumulator accumulator);

struct Path {
  std::string name;  // the instruction: "wgmma", "mma.sync", "tcgen05"
  std::vector<Format> formats;
  StepRule step;
  Chain chain = Chain::kSteps;
  Accumulator accumulator = Accumulator::kIntoUnit;
  Evidence evidence = Evidence::kVectors;
};

// Whether a result of this format leaves the path: FP16 ones only where nothing follows the unit.
bool writes(const Path& path, Format out);

// sum a_k b_k + c along the whole of a path. Codes as in tc_step; a.size() == b.size(), any length; writes(path, out).
uint32_t path_dot(const Path& path,
                  Format format,
                  std::span<const uint32_t> a,
                  std::span<const uint32_t> b,
                  uint32_t c,
                  Format out = Format::kFp32);

// What happens outside the tensor core in an FP8 linear: after every `every` products the partial sum t leaves the unit, meets the
// two scales of its 128-block and is added to the FP32 result f. `every` divides 128.
struct Promotion {
  enum class Form {
    kFusedScalesFirst,         // f = fma(sA * sB, t, f): DeepGEMM
    kSeparateScalesFirst,      // f = f + (sA * sB) * t, rounded twice
    kFusedActivationFirst,     // f = fma(t * sA, sB, f): Triton, fused
    kSeparateActivationFirst,  // f = f + (t * sA) * sB: Triton as written
  };
  int every = 128;
  Form form = Form::kFusedScalesFirst;

  bool operator==(const Promotion&) const = default;
};

// How the steps of a BF16 linear run along K: `num_splits` equal parts (the last one shorter, cut at whole steps), each a chain from
// zero, their results added in FP32 in ascending order; inside a part the steps ascend or descend.
struct Chunks {
  int num_splits = 1;
  bool descending = false;

  bool operator==(const Chunks&) const = default;
};

// How an accelerator that states it turns activations into codes, in place of the profile's quantiser.
struct Quantiser {
  enum class Scale { kTimesReciprocal, kDivide };               // amax * FP32(1/448), amax / 448
  enum class Code { kDivide, kTimesReciprocal, kMaxOverAmax };  // x / s, x * (1 / s), x * (448 / amax)
  bool power_of_two = false;                                    // the scale is rounded up to a power of two
  Scale scale = Scale::kTimesReciprocal;
  Code code = Code::kDivide;

  bool operator==(const Quantiser&) const = default;
};

struct Recipe {
  std::string name;
  std::vector<Path> paths;  // where a format has several, the first is what DeepSeek-V3's kernels use
  Promotion promotion = {};
  Chunks chunks = {};
  std::optional<Quantiser> quantiser = {};
};

// "hopper", "ampere", "ada", "blackwell".
const std::vector<Recipe>& recipes();
// Throws InputError that lists the names.
const Recipe& find_recipe(std::string_view name);
// The paths for a format, in order. Throws InputError if the accelerator has none.
std::vector<const Path*> paths_for(const Recipe& recipe, Format format);

// "toward_zero", "down", "nearest_even"
std::string_view rounding_name(Rounding rounding);
// "mma.sync: 16 products a step, 25 bits below the largest exponent (cut toward zero), 23 fraction bits (cut toward zero)"
std::string describe_path(const Path& path);

}  // namespace reference::tensor_core
