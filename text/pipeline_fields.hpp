// The parts of tokenizer.json around the vocabulary: normalizer, pre-tokenizer, decoder, post-processor.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "model/json_fields.hpp"
#include "text/regex.hpp"

namespace text {

void refuse_unless_null(model::JsonFields& fields, std::initializer_list<const char*> keys);
void refuse_unless_false(model::JsonFields& fields, std::initializer_list<const char*> keys);
// Whatever was not read might change ids.
void refuse_unread(const model::JsonFields& fields);

// These read one field of the file's `top` object and throw InputError for a kind or an option that is not supported.

// None, or a sequence of none.
void read_normalizer(model::JsonFields& top);
// A sequence of Split (Regex, Isolated) and Digits that ends with ByteLevel. Returns the patterns.
std::vector<Regex> read_pre_tokenizer(model::JsonFields& top);
// ByteLevel.
void read_decoder(model::JsonFields& top);
// None or ByteLevel, which move offsets only; or a template that puts one token before the text: returns it.
std::optional<std::string> read_post_processor(model::JsonFields& top);

}  // namespace text
