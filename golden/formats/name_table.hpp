// What the ops are called in other people's dumps: one table a format.
#pragma once

#include <string>
#include <vector>

#include "golden/formats/layout.hpp"

namespace golden {

// '#' stands for a number; the numbers of a foreign name take the places of '#' in ours, in order. When several rows give the
// same op, the first whose tensors are in the file counts.
struct NameRow {
  std::string foreign = {};
  std::string ours = {};
  Layout layout = Layout::kRows;
  std::string second = {};  // foreign name of the other tensor of a pair; empty: there is none
};

// DeepSeek-V3 and DeepSeek-V3.2-Exp inference code.
const std::vector<NameRow>& v32_names();
// transformers' DeepseekV3ForCausalLM and its MTP model.
const std::vector<NameRow>& hf_names();

}  // namespace golden
