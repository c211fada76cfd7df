// Somebody's output held against an op pack.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/op_pack/pack.hpp"

namespace tools::op_pack {

struct OutputJudgement {
  std::string output;  // "output", "output.scales"
  int64_t num_elements = 0;
  int64_t num_failed = 0;
  double max_bound_use = 0;
  std::vector<int64_t> worst = {};  // coordinate; empty if there is none to name
  double got = 0;
  double expected = 0;
  double bound = 0;
  std::string reason = {};  // why it fails, in words; empty: it passes
  std::string note = {};    // what was not judged

  [[nodiscard]] bool passes() const { return reason.empty(); }
};

// The tensor of a .npy file, or those of a .safetensors file: an only tensor is the main output; of several, those that are called
// as in the pack, where "output." before "output.scales" may be missing. Throws InputError.
std::map<std::string, model::TensorView> read_outputs(const std::filesystem::path& path, const OpPack& pack);

// Outputs of the pack that are not given are not judged, but the main one must be there. Throws InputError if it is not.
std::vector<OutputJudgement> judge(const OpPack& pack, const std::map<std::string, model::TensorView>& given);

}  // namespace tools::op_pack
