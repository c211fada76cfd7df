// Byte pair encoding: neighbouring tokens are merged, the pair of the lowest rank first, the leftmost of equal ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace text {

struct BpeTables {
  std::array<int32_t, 256> byte_ids{};  // the token of each byte
  struct Merge {
    int32_t left;
    int32_t right;
    int32_t result;
  };
  std::vector<Merge> merges;  // by rank; of a pair that is there twice, the later holds
  // A piece that is a token as a whole is that token, whatever the merges would make of it. Empty unless the file says so.
  std::unordered_map<std::string, int32_t> whole_pieces;
};

class Bpe {
 public:
  explicit Bpe(BpeTables tables);

  // Buffers that one caller reuses from piece to piece.
  struct Workspace {
    struct Part {
      int32_t id;  // -1: merged into the one before
      int32_t previous;
      int32_t next;  // -1 at the ends
    };
    struct Candidate {
      int32_t rank;
      int32_t at;  // the left part
      int32_t result;
    };
    std::vector<Part> parts;
    std::vector<Candidate> heap;
  };

  // Appends the tokens of `piece` to `ids`, in O(n log n) of its bytes.
  void append(std::string_view piece, Workspace& workspace, std::vector<int32_t>& ids) const;

 private:
  struct Ranked {
    int32_t rank;
    int32_t result;
  };
  [[nodiscard]] const Ranked* find(int32_t left, int32_t right) const;
  void push_pair(Workspace& workspace, int32_t at) const;

  std::array<int32_t, 256> byte_ids_;
  std::unordered_map<uint64_t, Ranked> merges_;  // by left << 32 | right
  std::unordered_map<std::string, int32_t> whole_pieces_;
};

}  // namespace text
