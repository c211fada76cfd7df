#include "text/stream_decoder.hpp"

#include "text/utf8.hpp"

namespace text {

std::string StreamDecoder::add(int32_t id) {
  const std::string_view bytes = tokenizer_.token_bytes(id);
  if (special_ == SpecialTokens::kSkip && tokenizer_.is_special(id)) {
    return {};
  }
  pending_ += bytes;
  // Only the last unit can be cut, and it is at most three bytes long.
  size_t end = 0;
  while (end < pending_.size()) {
    const Utf8Unit unit = read_utf8(pending_, end);
    if (unit.kind == Utf8Kind::kCut) {
      break;
    }
    end += unit.num_bytes;
  }
  std::string certain = replace_broken_utf8(std::string_view(pending_).substr(0, end));
  pending_.erase(0, end);
  return certain;
}

std::string StreamDecoder::finish() {
  std::string rest = replace_broken_utf8(pending_);
  pending_.clear();
  return rest;
}

}  // namespace text
