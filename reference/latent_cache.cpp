#include "reference/latent_cache.hpp"

#include <algorithm>

namespace reference {
namespace {

// Rows that nobody wrote read as NaN in every format, so that a read past the end cannot go unnoticed.
constexpr std::byte kPoison{0xFF};

}  // namespace

LatentCache::LatentCache(int64_t page_rows) : page_rows_(page_rows) {
  CHECK(page_rows > 0);
}

const LatentCache::Rows* LatentCache::find(int64_t layer, int64_t sequence) const {
  CHECK(layer >= 0 && sequence >= 0);
  if (layer >= static_cast<int64_t>(rows_.size())) {
    return nullptr;
  }
  const auto& sequences = rows_[static_cast<size_t>(layer)];
  return sequence < static_cast<int64_t>(sequences.size()) ? &sequences[static_cast<size_t>(sequence)] : nullptr;
}

int64_t LatentCache::num_rows(int64_t layer, int64_t sequence) const {
  const Rows* rows = find(layer, sequence);
  return rows == nullptr ? 0 : rows->count;
}

size_t LatentCache::take_page() {
  if (free_pages_.empty()) {
    pages_.emplace_back(static_cast<size_t>(page_rows_ * row_bytes()), kPoison);
    return pages_.size() - 1;
  }
  const size_t page = free_pages_.back();
  free_pages_.pop_back();
  std::ranges::fill(pages_[page], kPoison);
  return page;
}

std::span<std::byte> LatentCache::append(int64_t layer, int64_t sequence, model::DType dtype, int64_t row_len) {
  CHECK(row_len > 0);
  if (row_len_ == 0) {
    dtype_ = dtype;
    row_len_ = row_len;
  }
  CHECK(dtype == dtype_);
  CHECK_EQ(row_len, row_len_);
  if (find(layer, sequence) == nullptr) {
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(layer) + 1));
    auto& sequences = rows_[static_cast<size_t>(layer)];
    sequences.resize(std::max(sequences.size(), static_cast<size_t>(sequence) + 1));
  }
  Rows& rows = rows_[static_cast<size_t>(layer)][static_cast<size_t>(sequence)];
  const int64_t row_of_page = rows.count % page_rows_;
  if (row_of_page == 0) {
    rows.pages.push_back(take_page());
  }
  ++rows.count;
  return std::span(pages_[rows.pages.back()])
      .subspan(static_cast<size_t>(row_of_page * row_bytes()), static_cast<size_t>(row_bytes()));
}

void LatentCache::shorten(Rows& rows, int64_t num_rows) {
  rows.count = std::min(rows.count, num_rows);
  const auto needed = static_cast<size_t>((rows.count + page_rows_ - 1) / page_rows_);
  free_pages_.insert(free_pages_.end(), rows.pages.begin() + static_cast<int64_t>(needed), rows.pages.end());
  rows.pages.resize(needed);
}

void LatentCache::assign(int64_t layer, int64_t sequence, const model::TensorView& rows) {
  if (find(layer, sequence) != nullptr) {
    shorten(rows_[static_cast<size_t>(layer)][static_cast<size_t>(sequence)], 0);
  }
  for (int64_t i = 0; i < rows.num_rows(); ++i) {
    std::ranges::copy(model::slice_rows(rows, i, i + 1).bytes,
                      append(layer, sequence, rows.dtype, rows.row_len()).begin());
  }
}

void LatentCache::truncate(int64_t sequence, int64_t num_rows, int64_t first_layer) {
  CHECK(sequence >= 0 && num_rows >= 0 && first_layer >= 0);
  for (auto layer = static_cast<size_t>(first_layer); layer < rows_.size(); ++layer) {
    if (find(static_cast<int64_t>(layer), sequence) != nullptr) {
      shorten(rows_[layer][static_cast<size_t>(sequence)], num_rows);
    }
  }
}

Reused<std::span<const std::byte>> LatentCache::runs(int64_t layer, int64_t sequence) const {
  Reused<std::span<const std::byte>> runs;
  if (const Rows* rows = find(layer, sequence); rows != nullptr) {
    int64_t left = rows->count;
    runs.reserve(rows->pages.size());
    for (const size_t page : rows->pages) {
      const int64_t count = std::min(left, page_rows_);
      runs.push_back(std::span(pages_[page]).first(static_cast<size_t>(count * row_bytes())));
      left -= count;
    }
  }
  return runs;
}

model::TensorView LatentCache::gather(int64_t layer, std::span<const int64_t> sequences) const {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  int64_t count = 0;
  for (const int64_t sequence : sequences) {
    count += num_rows(layer, sequence);
  }
  if (count == 0) {
    return {};
  }
  bytes->reserve(static_cast<size_t>(count * row_bytes()));
  for (const int64_t sequence : sequences) {
    for (const auto run : runs(layer, sequence)) {
      bytes->insert(bytes->end(), run.begin(), run.end());
    }
  }
  return {dtype_, {count, row_len_}, *bytes, bytes};
}

}  // namespace reference
