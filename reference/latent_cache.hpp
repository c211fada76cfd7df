// The latent cache of many sequences: rows [kv_lora + rope] of each layer, in pages from one pool. It holds bytes and knows no
// arithmetic; what a row is, the op cache_latent decides.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/tensor_view.hpp"
#include "reference/reused.hpp"

namespace reference {

class LatentCache {
 public:
  static constexpr int64_t kDefaultPageRows = 64;

  // A page holds `page_rows` rows of one layer of one sequence. With as many rows as the longest sequence has, every sequence is
  // contiguous.
  explicit LatentCache(int64_t page_rows = kDefaultPageRows);

  // Sequences are numbered by the caller; one that was never written, or was removed, has no rows. Layers as in model::Op::layer.
  [[nodiscard]] int64_t num_rows(int64_t layer, int64_t sequence) const;

  // Room for one more row behind the others, to be written by the caller; rows already there stay where they are. All rows have
  // the format of the first one. The span is valid until the next call that changes the cache.
  [[nodiscard]] std::span<std::byte> append(int64_t layer, int64_t sequence, model::DType dtype, int64_t row_len);

  // These rows [rows, row_len] in place of whatever the sequence has in that layer.
  void assign(int64_t layer, int64_t sequence, const model::TensorView& rows);

  // Keeps the first `num_rows` rows of every layer from `first_layer` on that has more: drafts that were rejected go.
  void truncate(int64_t sequence, int64_t num_rows, int64_t first_layer = 0);
  // All layers; the pages go back to the pool.
  void remove(int64_t sequence) { truncate(sequence, 0); }

  // The rows of a sequence, page by page: each span holds whole rows, together num_rows. Valid until the cache changes.
  [[nodiscard]] Reused<std::span<const std::byte>> runs(int64_t layer, int64_t sequence) const;
  // A copy of the rows of several sequences one after another [rows, row_len]. Empty (no bytes) if there are none.
  [[nodiscard]] model::TensorView gather(int64_t layer, std::span<const int64_t> sequences) const;

  // Of the rows there are; meaningless before the first append.
  [[nodiscard]] model::DType dtype() const { return dtype_; }
  [[nodiscard]] int64_t row_len() const { return row_len_; }
  // Pages in use and free ones.
  [[nodiscard]] int64_t num_pages() const { return static_cast<int64_t>(pages_.size()); }

 private:
  struct Rows {
    std::vector<size_t> pages;  // in order of position
    int64_t count = 0;
  };

  [[nodiscard]] const Rows* find(int64_t layer, int64_t sequence) const;
  [[nodiscard]] int64_t row_bytes() const { return row_len_ * model::dtype_bytes(dtype_); }
  size_t take_page();
  void shorten(Rows& rows, int64_t num_rows);

  int64_t page_rows_;
  model::DType dtype_ = model::DType::kBF16;
  int64_t row_len_ = 0;
  std::vector<std::vector<std::byte>> pages_;
  std::vector<size_t> free_pages_;
  std::vector<std::vector<Rows>> rows_;  // [layer][sequence]
};

}  // namespace reference
