// Finds the added tokens (such as <|User|>) inside a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text {

struct AddedToken {
  int32_t id;
  std::string content;
  bool is_special;
  bool is_normalized;  // looked for after all that are not
  bool strips_left;    // takes the white space before it with it
  bool strips_right;
};

// A part of a text: an added token, or the text between two.
struct Segment {
  static constexpr int32_t kText = -1;
  int32_t id;             // kText for text
  std::string_view text;  // of kText; never empty
};

class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<AddedToken>& tokens);

  // The parts in order. The leftmost token counts, of those that start there the longest; the tokens that are normalized are
  // looked for in what the others leave.
  [[nodiscard]] std::vector<Segment> split(std::string_view text) const;

 private:
  // The contents as a tree of bytes.
  class Tree {
   public:
    void add(const AddedToken& token);
    void split(std::string_view text, std::vector<Segment>& segments) const;

   private:
    struct Match {
      size_t num_bytes = 0;  // 0: none
      uint32_t node = 0;
    };
    [[nodiscard]] Match longest(std::string_view text, size_t at) const;

    std::unordered_map<uint64_t, uint32_t> children_;  // by node << 8 | byte; the root is 0
    std::unordered_map<uint32_t, AddedToken> tokens_;  // by the node where they end
    uint32_t num_nodes_ = 1;
  };

  Tree raw_;
  Tree normalized_;
};

}  // namespace text
