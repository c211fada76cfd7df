// Cases: which token ids are fed, in which steps. Also reads the form of the oracle's prompts.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "model/op_list.hpp"
#include "model/tensor_view.hpp"

namespace golden {

// One step of the model. A prompt case starts from an empty cache; a decode case follows `after` (p7 -> d0 -> d1 ...), whose
// cache it extends.
struct Case {
  std::string name = {};                             // "p7", "b2", "d0"
  std::string after = {};                            // case whose cache this one extends; empty: none
  std::vector<std::vector<int32_t>> sequences = {};  // token ids fed to each sequence
  std::vector<int32_t> mtp_ids = {};  // drafted ids that MTP row i + k runs into after the prompt; empty: no MTP
  std::vector<int64_t> rows = {};     // rows of final_norm and logits that dumps of this case hold; empty: all

  bool operator==(const Case&) const = default;
  [[nodiscard]] int64_t num_tokens() const;
};

// All cases of a prompts.json, in order: `prompts` (object name -> ids), `batch2` (name -> list of rows), `decode`
// ({prefill, feed}: cases d0, d1, ... after the prefill case), `mtp` (name -> drafted ids, attached to the prompt case),
// `<case>_rows`. Any of them may be absent. Throws InputError naming file, key and what was expected.
std::vector<Case> read_cases(const std::filesystem::path& path);

// Case "p<number of ids>" of one sequence.
Case prompt_case(std::vector<int32_t> ids);

// The named cases and everything they follow, in order. Throws InputError listing the known names.
std::vector<Case> select_cases(const std::vector<Case>& all, const std::vector<std::string>& names);

// How many positions each sequence of the case finds in the cache and how many it adds. `all` holds the cases it follows.
std::vector<model::SequenceStep> sequence_steps(const std::vector<Case>& all, const Case& which);

// What a dump of the case holds of an op: the rows of Case::rows for final_norm and logits, the whole tensor otherwise. The
// tensor holds one row a token.
model::TensorView stored_rows(const Case& which, std::string_view op, const model::TensorView& tensor);

}  // namespace golden
