// A prompt in words: the tokenizer that a checkpoint has, and the ids that the model is fed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"

namespace tools {

// Of a checkpoint directory; none for a generated checkpoint, or when the directory has no tokenizer.json. Throws InputError.
std::optional<text::Tokenizer> tokenizer_of(const std::string& checkpoint);

// Throws InputError for a text that is empty or not UTF-8. `what` opens the message.
void check_prompt_text(const std::string& text, const std::string& what);

// The ids of a text, with the beginning-of-sequence token before them where the tokenizer adds it and the text does not have it.
// Checks the text.
std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text, const std::string& what);

}  // namespace tools
