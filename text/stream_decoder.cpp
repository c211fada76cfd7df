#include "text/stream_decoder.hpp"

#include <utility>

namespace text {

std::string StreamDecoder::add(int32_t id) {
  return tokenizer_.decode({&id, 1}, special_);
}

std::string StreamDecoder::finish() {
  return std::exchange(pending_, {});
}

}  // namespace text
