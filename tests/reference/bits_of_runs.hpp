// What a forward pass computed, cut into pieces that belong to one token (or one cached position) of one sequence, so
// that runs which batch, chunk or cache differently can be compared bit by bit.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/checkpoint.hpp"
#include "model/probe.hpp"
#include "reference/tokens.hpp"
#include "reference/transformer.hpp"
#include "tests/paths.hpp"

namespace reference {

inline const model::Checkpoint& mini() {
  static const model::Checkpoint checkpoint(source_dir() / "golden/data/mini/checkpoint");
  return checkpoint;
}

// "layer.1.moe.expert.3.gate @ sequence 0, position 5" -> bytes of that row.
using Pieces = std::map<std::string, std::string>;

inline std::string bytes_of(const model::TensorView& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

// Names of pieces that differ or are on one side only, up to five.
inline std::vector<std::string> differing_pieces(const Pieces& left, const Pieces& right) {
  std::vector<std::string> differing;
  for (const auto& [name, bytes] : left) {
    const auto other = right.find(name);
    if (other == right.end() || other->second != bytes) {
      differing.push_back(name);
    }
  }
  for (const auto& [name, bytes] : right) {
    if (!left.contains(name)) {
      differing.push_back(name);
    }
  }
  differing.resize(std::min<size_t>(differing.size(), 5));
  return differing;
}

// Collects the pieces of every op of one or more steps. A piece computed again (a key expanded anew in every step) must
// be the same.
class PieceCollector : public model::Probe {
 public:
  [[nodiscard]] bool wants(const model::Op&) const override { return true; }

  // `names` are the sequences of the workload, so that the same sequence has the same pieces alone and in a batch.
  void enter_step(const model::Workload& workload, std::vector<std::string> names) {
    workload_ = workload;
    names_ = std::move(names);
    topk_ids_ = {};
  }

  void see(const model::Op& op, const model::TensorView& value) override {
    if (op.kind == model::OpKind::kRouterExperts) {
      topk_ids_ = value;
    }
    const bool of_keys = op.kind == model::OpKind::kCacheLatent || op.id.ends_with(".kv_b");
    auto tokens = op.expert >= 0 ? tokens_of_expert(topk_ids_, op.expert) : Reused<int64_t>();
    int64_t token = 0;
    int64_t key_row = 0;
    for (size_t s = 0; s < names_.size(); ++s) {
      const auto [num_cached, num_new] = workload_.sequences[s];
      for (int64_t position = 0; of_keys && position < num_cached + num_new; ++position, ++key_row) {
        add(op, s, position, bytes_of(model::slice_rows(value, key_row, key_row + 1)));
      }
      for (int64_t i = 0; !of_keys && i < num_new; ++i, ++token) {
        const auto chosen = std::find(tokens.begin(), tokens.end(), token);
        if (op.expert >= 0 && chosen == tokens.end()) {
          continue;
        }
        const int64_t row = op.expert >= 0 ? chosen - tokens.begin() : token;
        const auto row_value = model::slice_rows(value, row, row + 1);
        add(op,
            s,
            num_cached + i,
            op.kind == model::OpKind::kAttentionProbs ? visible(row_value, num_cached + i + 1) : bytes_of(row_value));
      }
    }
  }

  [[nodiscard]] const Pieces& pieces() const { return pieces_; }
  [[nodiscard]] const std::vector<std::string>& contradictions() const { return contradictions_; }

 private:
  // Probabilities of the keys a token sees, head by head; the width of the row depends on the batch.
  static std::string visible(const model::TensorView& row, int64_t num_visible) {
    const auto width = row.shape.back();
    const auto step = model::dtype_bytes(row.dtype);
    std::string bytes;
    for (int64_t head = 0; head < row.shape[1]; ++head) {
      bytes += bytes_of(row).substr(static_cast<size_t>(head * width * step), static_cast<size_t>(num_visible * step));
    }
    return bytes;
  }

  void add(const model::Op& op, size_t sequence, int64_t position, std::string bytes) {
    const std::string name = fmt::format("{} @ sequence {}, position {}", op.id, names_[sequence], position);
    const auto [place, is_new] = pieces_.emplace(name, bytes);
    if (!is_new && place->second != bytes) {
      contradictions_.push_back(name);
    }
  }

  model::Workload workload_;
  std::vector<std::string> names_;
  model::TensorView topk_ids_;
  Pieces pieces_;
  std::vector<std::string> contradictions_;
};

}  // namespace reference
