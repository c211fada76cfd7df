// A prompt in words: the tokenizer that a checkpoint has, and the ids that the model is fed.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"

namespace tools {

// Of a checkpoint directory; none for a generated checkpoint, or when the directory has no tokenizer.json. Throws InputError.
std::optional<text::Tokenizer> tokenizer_of(const std::string& checkpoint);

// Throws InputError for a text that is empty or not UTF-8. `what` opens the message.
void check_prompt_text(const std::string& text, const std::string& what);

// The ids of a text, with the beginning-of-sequence token before them where the tokenizer adds it and the text does not have it.
// Checks the text.
std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer, const std::string& text, const std::string& what);

// The tools of a conversation; null if it has none. Where the format has no place for them, says on stderr that they are left out.
const nlohmann::ordered_json* tools_of(const nlohmann::ordered_json& conversation,
                                       const text::ChatTemplate& format,
                                       const std::string& what);

}  // namespace tools
