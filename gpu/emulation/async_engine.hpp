// What runs beside the threads of a block: barriers in shared memory that count arrivals and bytes (mbarrier), copies of tiles (TMA) and
// products of warpgroups (wgmma). Copies happen when no thread can run, in random order also earlier; products when somebody waits for
// them. Until then the destination holds NaN.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "gpu/emulation/site.hpp"
#include "gpu/emulation/tensor_map.hpp"

namespace gpu::emulation {

class BlockRunner;

inline constexpr int kWarpgroupLen = 128;

// A product of 64 rows and num_columns columns, both 128 bytes long and swizzled as tiles are; c is a thread's share.
struct WarpgroupProduct {
  const void* a = nullptr;
  const void* b = nullptr;
  int num_columns = 0;
  bool adds = false;   // to what c holds
  float* c = nullptr;  // [num_columns / 2] of the calling thread
};

class AsyncEngine {
 public:
  explicit AsyncEngine(BlockRunner& runner) : runner_(runner) {}

  void begin_block(int num_threads);
  [[nodiscard]] bool has_tiles() const { return !tiles_.empty(); }
  void copy_one_tile();
  // What is wrong with the block's end, or nothing.
  [[nodiscard]] const char* unfinished() const;

  // --- Called by the running thread ---
  void init_barrier(const void* barrier, int num_arrivals, Site site);
  void arrive(const void* barrier, int64_t expected_bytes, Site site);
  // Until the phase of this parity is complete.
  void wait(const void* barrier, int parity, Site site);
  void load_tile(void* to, const TensorMap& map, int64_t byte, int64_t row, const void* barrier, Site site);
  void fence_products();
  void multiply(const WarpgroupProduct& product, Site site);
  void commit_products(Site site);
  void wait_products(int num_groups_left, Site site);

 private:
  struct Barrier {
    int num_arrivals = 0;
    int pending = 0;
    int64_t bytes = 0;  // expected and not yet come
    int parity = 0;     // of the phase in progress
    bool has_unseen_tile = false;
    std::vector<int> waiting;
  };
  struct Tile {
    void* to = nullptr;
    TensorMap map;
    int64_t byte = 0;
    int64_t row = 0;
    const void* barrier = nullptr;
    int thread = 0;
    Site site;
  };
  struct Product {
    WarpgroupProduct tile;
    std::array<float*, kWarpgroupLen> c = {};
    std::vector<float> before;  // [kWarpgroupLen][num_columns / 2]: c when it was issued
    bool follows = false;       // c is what a product that is not done yet will give
    Site site;
  };
  struct Warpgroup {
    std::vector<Product> open;
    std::deque<std::vector<Product>> groups;
    std::array<bool, kWarpgroupLen> is_fenced = {};
  };

  Barrier& barrier_at(const void* barrier, Site site);
  void complete_if_done(const void* address, Barrier& barrier);
  void do_product(const Product& product, int first_thread);
  Warpgroup& my_warpgroup();
  [[nodiscard]] bool is_pending(const float* c);

  BlockRunner& runner_;
  std::unordered_map<const void*, Barrier> barriers_;
  std::deque<Tile> tiles_;
  std::vector<Warpgroup> warpgroups_;
};

}  // namespace gpu::emulation
