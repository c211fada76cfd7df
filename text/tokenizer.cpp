#include "text/tokenizer.hpp"

#include "model/check.hpp"
#include "text/byte_level.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/tokenizer_file.hpp"
#include "text/utf8.hpp"

namespace text {

struct Tokenizer::Parts {
  explicit Parts(TokenizerFile file)
      : bpe(std::move(file.bpe)),
        pre_tokenizer(std::move(file.splits)),
        added(file.added),
        is_special(file.tokens.size()),
        bos_id(file.bos_id),
        eos_id(file.eos_id),
        adds_bos(file.adds_bos) {
    for (std::string& token : file.tokens) {
      // A token with a character outside the alphabet, as most added ones have, is text as it stands.
      auto bytes = byte_level_bytes(token);
      token_bytes.push_back(bytes ? std::move(*bytes) : std::move(token));
    }
    for (const AddedToken& token : file.added) {
      is_special[static_cast<size_t>(token.id)] = token.is_special;
    }
  }

  Bpe bpe;
  PreTokenizer pre_tokenizer;
  AddedTokens added;
  std::vector<std::string> token_bytes;  // by id
  std::vector<bool> is_special;          // by id
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  bool adds_bos;
};

Tokenizer Tokenizer::load(const std::filesystem::path& directory) {
  return Tokenizer(std::make_shared<Parts>(read_tokenizer_file(directory)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  if (const size_t broken_at = find_broken_utf8(text); broken_at != std::string_view::npos) {
    model::throw_input_error("text to encode: expected UTF-8, byte {} is not", broken_at);
  }
  std::vector<int32_t> ids;
  Bpe::Workspace workspace;
  for (const Segment& segment : parts_->added.split(text)) {
    if (segment.id != Segment::kText) {
      ids.push_back(segment.id);
      continue;
    }
    for (const std::string_view piece : parts_->pre_tokenizer.split(segment.text)) {
      parts_->bpe.append(piece, workspace, ids);
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens special) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (special == SpecialTokens::kKeep || !is_special(id)) {
      bytes += token_bytes(id);
    }
  }
  return replace_broken_utf8(bytes);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0) {
    model::throw_input_error("token id {}: expected 0 or more", id);
  }
  return id < vocab_size() ? std::string_view(parts_->token_bytes[static_cast<size_t>(id)]) : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->is_special[static_cast<size_t>(id)];
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(parts_->token_bytes.size());
}

std::optional<int32_t> Tokenizer::bos_id() const {
  return parts_->bos_id;
}

std::optional<int32_t> Tokenizer::eos_id() const {
  return parts_->eos_id;
}

bool Tokenizer::adds_bos() const {
  return parts_->adds_bos;
}

}  // namespace text
