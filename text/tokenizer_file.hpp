// What tokenizer.json and tokenizer_config.json say, checked: everything that decides about ids is understood or refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "text/added_tokens.hpp"
#include "text/bpe.hpp"
#include "text/regex.hpp"

namespace text {

struct TokenizerFile {
  BpeTables bpe;
  std::vector<Regex> splits;        // the pre-tokenizer's stages
  std::vector<AddedToken> added;    // ids and contents are unique
  std::vector<std::string> tokens;  // by id, as the file writes them; empty where an id has none
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  bool adds_bos = false;
};

// Throws InputError: "<file>: <field> <value>: <what was expected>".
TokenizerFile read_tokenizer_file(const std::filesystem::path& directory);

}  // namespace text
