#include "text/added_tokens.hpp"

#include <algorithm>

#include "text/utf8.hpp"

namespace text {
namespace {

uint64_t child_key(uint32_t node, char byte) {
  return uint64_t{node} << 8U | static_cast<unsigned char>(byte);
}

// Where the white space that ends at `end` begins, not before `min`.
size_t skip_space_backwards(std::string_view text, size_t min, size_t end) {
  while (end > min) {
    size_t start = end - 1;
    while (start > min && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) {
      --start;
    }
    if (!is_white_space(read_utf8(text, start).character)) {
      break;
    }
    end = start;
  }
  return end;
}

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Unit unit = read_utf8(text, at);
    if (!is_white_space(unit.character)) {
      break;
    }
    at += unit.num_bytes;
  }
  return at;
}

}  // namespace

void AddedTokens::Tree::add(const AddedToken& token) {
  uint32_t node = 0;
  for (const char byte : token.content) {
    const auto [child, is_new] = children_.try_emplace(child_key(node, byte), num_nodes_);
    num_nodes_ += is_new ? 1 : 0;
    node = child->second;
  }
  tokens_.emplace(node, token);
}

AddedTokens::Tree::Match AddedTokens::Tree::longest(std::string_view text, size_t at) const {
  Match match;
  uint32_t node = 0;
  for (size_t end = at; end < text.size(); ++end) {
    const auto child = children_.find(child_key(node, text[end]));
    if (child == children_.end()) {
      break;
    }
    node = child->second;
    if (tokens_.contains(node)) {
      match = {end + 1 - at, node};
    }
  }
  return match;
}

void AddedTokens::Tree::split(std::string_view text, std::vector<Segment>& segments) const {
  size_t done = 0;  // what lies before is in a segment
  for (size_t at = 0; at < text.size();) {
    const Match match = longest(text, at);
    if (match.num_bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_.at(match.node);
    const size_t start = token.strips_left ? skip_space_backwards(text, std::min(done, at), at) : at;
    at += match.num_bytes;
    if (done < start) {
      segments.push_back({Segment::kText, text.substr(done, start - done)});
    }
    segments.push_back({token.id, {}});
    done = token.strips_right ? skip_space(text, at) : at;
  }
  if (done < text.size()) {
    segments.push_back({Segment::kText, text.substr(done)});
  }
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    (token.is_normalized ? normalized_ : raw_).add(token);
  }
}

std::vector<Segment> AddedTokens::split(std::string_view text) const {
  std::vector<Segment> coarse;
  raw_.split(text, coarse);
  std::vector<Segment> segments;
  for (const Segment& segment : coarse) {
    if (segment.id == Segment::kText) {
      normalized_.split(segment.text, segments);
    } else {
      segments.push_back(segment);
    }
  }
  return segments;
}

}  // namespace text
