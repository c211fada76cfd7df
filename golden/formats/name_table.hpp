// What the ops are called in other people's dumps: one table a format.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "golden/formats/layout.hpp"

namespace golden {

// '#' stands for a number; the numbers of a foreign name take the places of '#' in ours, in order. When several rows give the
// same op, the first whose tensors are in the file counts.
struct NameRow {
  std::string foreign = {};
  std::string ours = {};  // with '*' for the expert where the layout holds all experts in one tensor
  Layout layout = Layout::kRows;
  std::string second = {};  // foreign name of the other tensor of a pair; empty: there is none
  // The part of the last extent that is meant, of a fused tensor; empty: all of it. A number, a size of the model's config
  // ("q_lora_rank"), "half" or "end".
  std::string slice_begin = {};
  std::string slice_end = {};
  // Added to the first number of a foreign name to get ours: a number, or "-num_hidden_layers"; empty: 0. Names whose number would
  // be negative are not meant.
  std::string shift = {};
};

enum class Padding { kNone, kLeft, kRight, kTail };  // of each sequence's tokens; kTail: after the last sequence only

struct NameMap {
  std::vector<NameRow> rows = {};
  std::map<std::string, std::string> cases =
      {};  // step number of the dump -> case; empty: steps are cases in their order
  std::vector<std::string> positions =
      {};  // foreign names of the tokens' positions, which tell tokens from padding; the first that is there counts
  Padding padding = Padding::kNone;  // where there are no positions
};

// DeepSeek-V3 and DeepSeek-V3.2-Exp inference code.
const std::vector<NameRow>& v32_names();
// transformers' DeepseekV3ForCausalLM and its MTP model.
const std::vector<NameRow>& hf_names();

}  // namespace golden
