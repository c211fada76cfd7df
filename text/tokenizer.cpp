#include "text/tokenizer.hpp"

#include "model/check.hpp"

namespace text {

struct Tokenizer::Parts {};

Tokenizer Tokenizer::load(const std::filesystem::path& directory) {
  model::throw_input_error("{}: tokenizers are not read yet", directory.string());
}

std::vector<int32_t> Tokenizer::encode(std::string_view) const {
  return {};
}
std::string Tokenizer::decode(std::span<const int32_t>, SpecialTokens) const {
  return {};
}
std::string_view Tokenizer::token_bytes(int32_t) const {
  return {};
}
bool Tokenizer::is_special(int32_t) const {
  return false;
}
int64_t Tokenizer::vocab_size() const {
  return 0;
}
std::optional<int32_t> Tokenizer::bos_id() const {
  return {};
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return {};
}
bool Tokenizer::adds_bos() const {
  return false;
}

}  // namespace text
