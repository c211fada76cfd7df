// Hands out pages of the latent cache.
#pragma once

#include <cstdint>
#include <vector>

#include "model/check.hpp"

namespace gpu {

class PagePool {
 public:
  explicit PagePool(int64_t num_pages) {
    for (auto page = static_cast<int32_t>(num_pages); page-- > 0;) {
      free_.push_back(page);
    }
  }

  [[nodiscard]] int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  std::vector<int32_t> take(int64_t count) {
    CHECK(count <= num_free());
    std::vector<int32_t> pages(free_.rbegin(), free_.rbegin() + count);
    free_.resize(free_.size() - static_cast<size_t>(count));
    return pages;
  }
  void give_back(const std::vector<int32_t>& pages) { free_.insert(free_.end(), pages.rbegin(), pages.rend()); }

 private:
  std::vector<int32_t> free_;  // the next one last
};

}  // namespace gpu
