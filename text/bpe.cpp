#include "text/bpe.hpp"

#include <algorithm>
#include <tuple>

#include "model/check.hpp"

namespace text {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32U | static_cast<uint32_t>(right);
}

// std::push_heap keeps the largest on top, and the first to merge is the one of the lowest rank, then the leftmost.
bool merges_later(const Bpe::Workspace::Candidate& a, const Bpe::Workspace::Candidate& b) {
  return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
}

}  // namespace

Bpe::Bpe(BpeTables tables) : byte_ids_(tables.byte_ids), whole_pieces_(std::move(tables.whole_pieces)) {
  merges_.reserve(tables.merges.size());
  int32_t rank = 0;
  for (const BpeTables::Merge& merge : tables.merges) {
    merges_.insert_or_assign(pair_key(merge.left, merge.right), Ranked{rank++, merge.result});
  }
}

const Bpe::Ranked* Bpe::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void Bpe::push_pair(Workspace& workspace, int32_t at) const {
  const auto& parts = workspace.parts;
  if (at < 0 || parts[at].next < 0) {
    return;
  }
  if (const Ranked* merge = find(parts[at].id, parts[parts[at].next].id)) {
    workspace.heap.push_back({merge->rank, at, merge->result});
    std::push_heap(workspace.heap.begin(), workspace.heap.end(), merges_later);
  }
}

void Bpe::append(std::string_view piece, Workspace& workspace, std::vector<int32_t>& ids) const {
  if (!whole_pieces_.empty()) {
    if (const auto whole = whole_pieces_.find(std::string(piece)); whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  CHECK(piece.size() < (size_t{1} << 31U));
  const auto num_bytes = static_cast<int32_t>(piece.size());
  auto& parts = workspace.parts;
  auto& heap = workspace.heap;
  parts.clear();
  heap.clear();
  for (int32_t i = 0; i < num_bytes; ++i) {
    parts.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], i - 1, i + 1 < num_bytes ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < num_bytes; ++i) {
    push_pair(workspace, i);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), merges_later);
    const Workspace::Candidate candidate = heap.back();
    heap.pop_back();
    Workspace::Part& left = parts[candidate.at];
    if (left.id < 0 || left.next < 0) {
      continue;
    }
    // The pair may have changed since it was pushed. As in Hugging Face tokenizers, the token that comes out decides whether it
    // still counts, not the pair.
    Workspace::Part& right = parts[left.next];
    const Ranked* merge = find(left.id, right.id);
    if (merge == nullptr || merge->result != candidate.result) {
      continue;
    }
    left.id = candidate.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) {
      parts[left.next].previous = candidate.at;
    }
    push_pair(workspace, left.previous);
    push_pair(workspace, candidate.at);
  }
  for (const Workspace::Part& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
    }
  }
}

}  // namespace text
