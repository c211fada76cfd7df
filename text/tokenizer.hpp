// Text to token ids and back, as the tokenizer.json of a checkpoint directory says: byte-level BPE (docs/text.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace text {

enum class SpecialTokens { kKeep, kSkip };

// Immutable; a copy shares the tables, and any number of threads may use one.
class Tokenizer {
 public:
  // Reads tokenizer.json, and tokenizer_config.json if it is there. Throws InputError: for a file that is missing or broken, and
  // for everything in it that changes ids and that this class does not do.
  static Tokenizer load(const std::filesystem::path& directory);

  // Added tokens are found inside the text; nothing is put before or behind it (see adds_bos). Throws InputError when `text` is
  // not UTF-8.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const;

  // Always UTF-8: each maximal broken part becomes U+FFFD. Ids that no token has (rows of the embedding table behind the
  // vocabulary) decode to nothing. Throws InputError for a negative id.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, SpecialTokens special = SpecialTokens::kKeep) const;

  // The bytes that `id` stands for: possibly part of a character, empty when no token has this id. Throws InputError for a
  // negative id.
  [[nodiscard]] std::string_view token_bytes(int32_t id) const;
  [[nodiscard]] bool is_special(int32_t id) const;

  // One more than the largest id of a token. The embedding table may have more rows.
  [[nodiscard]] int64_t vocab_size() const;

  // From tokenizer_config.json; empty when it does not name them.
  [[nodiscard]] std::optional<int32_t> bos_id() const;
  [[nodiscard]] std::optional<int32_t> eos_id() const;
  // Whether a plain prompt starts with bos_id(): `add_bos_token` of tokenizer_config.json. A chat template writes its own.
  [[nodiscard]] bool adds_bos() const;

 private:
  struct Parts;
  explicit Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace text
