#include "text/pre_tokenizer.hpp"

#include "text/utf8.hpp"

namespace text {
namespace {

void cut(std::string_view piece, Regex::Searcher& searcher, std::vector<std::string_view>& pieces) {
  size_t done = 0;
  const auto cut_at = [&](size_t at) {
    if (at > done) {
      pieces.push_back(piece.substr(done, at - done));
      done = at;
    }
  };
  for (size_t from = 0; from < piece.size();) {
    const auto match = searcher.find(piece, from);
    if (!match) {
      break;
    }
    cut_at(match->begin);
    cut_at(match->end);
    from = match->end;
    if (match->begin == match->end && from < piece.size()) {
      from += read_utf8(piece, from).num_bytes;
    }
  }
  cut_at(piece.size());
}

}  // namespace

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces = {text};
  for (const Regex& stage : stages_) {
    Regex::Searcher searcher(stage);
    std::vector<std::string_view> finer;
    finer.reserve(pieces.size());
    for (const std::string_view piece : pieces) {
      cut(piece, searcher, finer);
    }
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace text
