// Decodes ids as they come, holding back the bytes of a character that is not complete yet.
#pragma once

#include <string>

#include "text/tokenizer.hpp"

namespace text {

// All that add() and finish() return, put together, is what Tokenizer::decode() makes of the same ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, SpecialTokens special = SpecialTokens::kKeep)
      : tokenizer_(std::move(tokenizer)), special_(special) {}

  // The UTF-8 that is certain once `id` has come; often empty inside a character. Throws InputError for a negative id.
  std::string add(int32_t id);
  // What is left at the end: nothing, or U+FFFD for a character that was never completed.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  SpecialTokens special_;
  std::string pending_;  // up to three bytes: the start of a character
};

}  // namespace text
