#include "gpu/emulation/async_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/race_checker.hpp"
#include "gpu/emulation/tile_product.hpp"
#include "model/check.hpp"

namespace gpu::emulation {
namespace {

constexpr int kBoxBytes = 128;
constexpr int kChunkBytes = 16;
constexpr int kWordBytes = 4;
constexpr int kAtomRows = 8;            // the swizzle repeats after so many rows
constexpr uintptr_t kAtomBytes = 1024;  // and tiles start at multiples of this
constexpr int kWarpgroupRows = 64;

// Where byte `byte` of row `row` lies in a tile.
size_t swizzled_offset(int row, int byte) {
  return static_cast<size_t>(row * kBoxBytes + ((byte / kChunkBytes) ^ (row % kAtomRows)) * kChunkBytes +
                             byte % kChunkBytes);
}

// Element i of a thread's share of a 64-row product (PTX ISA, wgmma: layout of D).
int row_of(int thread, int i) {
  return thread / kWarpLen * 16 + thread % kWarpLen / 4 + 8 * (i % 4 / 2);
}
int column_of(int thread, int i) {
  return i / 4 * 8 + thread % 4 * 2 + i % 2;
}

}  // namespace

void AsyncEngine::begin_block(int num_threads) {
  barriers_.clear();
  tiles_.clear();
  warpgroups_.assign(static_cast<size_t>((num_threads + kWarpgroupLen - 1) / kWarpgroupLen), {});
}

const char* AsyncEngine::unfinished() const {
  const bool any_unseen =
      std::ranges::any_of(barriers_, [](const auto& entry) { return entry.second.has_unseen_tile; });
  if (has_tiles() || any_unseen) {
    return "a tile was not waited for when the block ended";
  }
  const bool any_product = std::ranges::any_of(
      warpgroups_, [](const Warpgroup& group) { return !group.open.empty() || !group.groups.empty(); });
  return any_product ? "a product was not waited for when the block ended" : nullptr;
}

AsyncEngine::Barrier& AsyncEngine::barrier_at(const void* barrier, Site site) {
  const auto found = barriers_.find(barrier);
  if (found == barriers_.end()) {
    runner_.fail(FaultKind::kRace, "no barrier was initialised here", site);
  }
  return found->second;
}

void AsyncEngine::init_barrier(const void* barrier, int num_arrivals, Site /*site*/) {
  barriers_[barrier] = {.num_arrivals = num_arrivals, .pending = num_arrivals, .waiting = {}};
}

void AsyncEngine::complete_if_done(const void* address, Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) {
    return;
  }
  barrier.pending = barrier.num_arrivals;
  barrier.parity ^= 1;
  if (RaceChecker* checker = runner_.checker(); checker != nullptr) {
    checker->barrier_completed(address);
  }
  std::ranges::sort(barrier.waiting);
  runner_.make_runnable(barrier.waiting.data(), static_cast<int>(barrier.waiting.size()));
  barrier.waiting.clear();
}

void AsyncEngine::arrive(const void* address, int64_t expected_bytes, Site site) {
  Barrier& barrier = barrier_at(address, site);
  if (barrier.pending == 0) {
    runner_.fail(FaultKind::kRace, "more arrivals at a barrier than it was initialised for", site);
  }
  if (RaceChecker* checker = runner_.checker(); checker != nullptr) {
    checker->barrier_arrived(runner_.thread_id(), address);
  }
  --barrier.pending;
  barrier.bytes += expected_bytes;
  complete_if_done(address, barrier);
}

void AsyncEngine::wait(const void* address, int parity, Site site) {
  while (barrier_at(address, site).parity == parity) {
    barrier_at(address, site).waiting.push_back(runner_.thread_id());
    runner_.wait_here("barrier", site);
  }
  barrier_at(address, site).has_unseen_tile = false;
  if (RaceChecker* checker = runner_.checker(); checker != nullptr) {
    checker->barrier_waited(runner_.thread_id(), address);
  }
}

void AsyncEngine::load_tile(void* to, const TensorMap& map, int64_t byte, int64_t row, const void* barrier, Site site) {
  barrier_at(barrier, site);
  if (reinterpret_cast<uintptr_t>(to) % kAtomBytes != 0) {
    runner_.fail(FaultKind::kMisaligned, fmt::format("tile at address {}: not a multiple of 1024", to), site);
  }
  const int64_t tile_bytes = int64_t{map.box_rows} * kBoxBytes;
  const int64_t row_bytes = std::clamp<int64_t>(map.row_bytes - byte, 0, kBoxBytes);
  if (RaceChecker* checker = runner_.checker(); checker != nullptr) {
    const auto origin = checker->origin_of(site);
    for (int64_t r = row; r < std::min(row + map.box_rows, map.num_rows) && row_bytes > 0; ++r) {
      checker->access(
          runner_.thread_id(), map.start + r * map.row_stride_bytes + byte, row_bytes, AccessKind::kRead, origin);
    }
    checker->access(runner_.thread_id(), to, tile_bytes, AccessKind::kPendingWrite, origin);
  }
  std::memset(to, 0xFF, static_cast<size_t>(tile_bytes));
  tiles_.push_back({to, map, byte, row, barrier, runner_.thread_id(), site});
  if (runner_.options().order.kind == OrderKind::kRandom && runner_.random() % 4 == 0) {
    copy_one_tile();
  }
}

void AsyncEngine::copy_one_tile() {
  size_t chosen = 0;
  switch (runner_.options().order.kind) {
    case OrderKind::kForward: break;
    case OrderKind::kReverse: chosen = tiles_.size() - 1; break;
    case OrderKind::kRandom: chosen = runner_.random() % tiles_.size(); break;
  }
  const Tile tile = tiles_[chosen];
  tiles_.erase(tiles_.begin() + static_cast<int64_t>(chosen));
  auto* const to = static_cast<std::byte*>(tile.to);
  for (int r = 0; r < tile.map.box_rows; ++r) {
    const int64_t row = tile.row + r;
    for (int chunk = 0; chunk < kBoxBytes; chunk += kChunkBytes) {
      std::array<std::byte, kChunkBytes> bytes = {};
      const int64_t count = std::clamp<int64_t>(tile.map.row_bytes - tile.byte - chunk, 0, kChunkBytes);
      if (row < tile.map.num_rows && count > 0) {
        std::memcpy(bytes.data(),
                    tile.map.start + row * tile.map.row_stride_bytes + tile.byte + chunk,
                    static_cast<size_t>(count));
      }
      std::memcpy(to + swizzled_offset(r, chunk), bytes.data(), kChunkBytes);
    }
  }
  const int64_t tile_bytes = int64_t{tile.map.box_rows} * kBoxBytes;
  if (RaceChecker* checker = runner_.checker(); checker != nullptr) {
    checker->access(tile.thread, tile.to, tile_bytes, AccessKind::kAsyncWrite, checker->origin_of(tile.site));
    checker->barrier_arrived(tile.thread, tile.barrier);
  }
  Barrier& barrier = barrier_at(tile.barrier, tile.site);
  barrier.bytes -= tile_bytes;
  barrier.has_unseen_tile = true;
  complete_if_done(tile.barrier, barrier);
}

AsyncEngine::Warpgroup& AsyncEngine::my_warpgroup() {
  return warpgroups_[static_cast<size_t>(runner_.thread_id() / kWarpgroupLen)];
}

bool AsyncEngine::is_pending(const float* c) {
  const auto has_c = [c](const Product& product) { return product.tile.c == c; };
  const Warpgroup& group = my_warpgroup();
  return std::ranges::any_of(group.open, has_c) ||
         std::ranges::any_of(group.groups, [&](const auto& products) { return std::ranges::any_of(products, has_c); });
}

void AsyncEngine::fence_products() {
  my_warpgroup().is_fenced[static_cast<size_t>(runner_.thread_id() % kWarpgroupLen)] = true;
}

void AsyncEngine::multiply(const WarpgroupProduct& product, Site site) {
  if (!my_warpgroup().is_fenced[static_cast<size_t>(runner_.thread_id() % kWarpgroupLen)]) {
    runner_.fail(FaultKind::kRace, "a product without a fence since its accumulators were last read", site);
  }
  if (runner_.options().accumulation == Accumulation::kAmpere) {
    runner_.fail(FaultKind::kBadLaunch, "this architecture has no wgmma", site);
  }
  for (const void* tile : {product.a, product.b}) {
    if (reinterpret_cast<uintptr_t>(tile) % kAtomBytes != 0) {
      runner_.fail(FaultKind::kMisaligned, fmt::format("operand at address {}: not a multiple of 1024", tile), site);
    }
  }
  WarpgroupProduct mine = product;
  struct Closure {
    AsyncEngine* engine;
    Site site;
  } closure{this, site};
  runner_.warpgroup_operation(
      "multiply_warpgroup",
      site,
      &mine,
      [](void* const* operands, void* what) {
        const auto& [engine, where] = *static_cast<const Closure*>(what);
        const auto& first = *static_cast<const WarpgroupProduct*>(operands[0]);
        const int share = first.num_columns / 2;
        Product issued{.tile = first, .before = {}, .follows = engine->is_pending(first.c), .site = where};
        for (int thread = 0; thread < kWarpgroupLen; ++thread) {
          float* const c = static_cast<const WarpgroupProduct*>(operands[thread])->c;
          issued.c[static_cast<size_t>(thread)] = c;
          issued.before.insert(issued.before.end(), c, c + share);
          std::fill_n(c, share, std::numeric_limits<float>::quiet_NaN());
        }
        engine->my_warpgroup().open.push_back(std::move(issued));
      },
      &closure);
}

void AsyncEngine::commit_products(Site site) {
  runner_.warpgroup_operation(
      "commit_products",
      site,
      nullptr,
      [](void* const* /*operands*/, void* closure) {
        Warpgroup& group = static_cast<AsyncEngine*>(closure)->my_warpgroup();
        group.groups.push_back(std::exchange(group.open, {}));
      },
      this);
}

void AsyncEngine::wait_products(int num_groups_left, Site site) {
  struct Closure {
    AsyncEngine* engine;
    size_t num_left;
  } closure{this, static_cast<size_t>(num_groups_left)};
  runner_.warpgroup_operation(
      "wait_products",
      site,
      nullptr,
      [](void* const* /*operands*/, void* what) {
        const auto& [engine, num_left] = *static_cast<const Closure*>(what);
        Warpgroup& group = engine->my_warpgroup();
        while (group.groups.size() > num_left) {
          for (const Product& product : group.groups.front()) {
            engine->do_product(product, engine->runner_.thread_id() / kWarpgroupLen * kWarpgroupLen);
          }
          group.groups.pop_front();
        }
        group.is_fenced.fill(false);
      },
      &closure);
}

// Operands are read now, the latest moment that the hardware leaves open.
void AsyncEngine::do_product(const Product& product, int first_thread) {
  const int columns = product.tile.num_columns;
  const int share = columns / 2;
  thread_local TileProduct tile;
  tile.resize(kWarpgroupRows, columns, kBoxBytes / kWordBytes, OperandFormat::kE4m3);
  const auto read = [&](const void* from, int num_rows, std::vector<uint32_t>& to) {
    if (RaceChecker* checker = runner_.checker(); checker != nullptr) {
      checker->access(
          first_thread, from, int64_t{num_rows} * kBoxBytes, AccessKind::kAsyncRead, checker->origin_of(product.site));
    }
    for (int row = 0; row < num_rows; ++row) {
      for (int byte = 0; byte < kBoxBytes; byte += kChunkBytes) {
        std::array<uint32_t, kChunkBytes / kWordBytes> words;
        std::memcpy(words.data(), static_cast<const std::byte*>(from) + swizzled_offset(row, byte), kChunkBytes);
        for (size_t i = 0; i < words.size(); ++i) {
          to[(static_cast<size_t>(byte) / kWordBytes + i) * static_cast<size_t>(num_rows) + static_cast<size_t>(row)] =
              words[i];
        }
      }
    }
  };
  read(product.tile.a, kWarpgroupRows, tile.a_words);
  read(product.tile.b, columns, tile.b_words);
  tile.decode(OperandFormat::kE4m3);
  const auto at = [&](int thread, int i) -> float& {
    return tile.c[static_cast<size_t>(column_of(thread, i) * kWarpgroupRows + row_of(thread, i))];
  };
  for (int thread = 0; thread < kWarpgroupLen; ++thread) {
    for (int i = 0; i < share; ++i) {
      const float before = product.follows ? product.c[static_cast<size_t>(thread)][i]
                                           : product.before[static_cast<size_t>(thread * share + i)];
      at(thread, i) = product.tile.adds ? before : 0.0f;
    }
  }
  tile.multiply_warpgroup(runner_.options().accumulation);
  for (int thread = 0; thread < kWarpgroupLen; ++thread) {
    for (int i = 0; i < share; ++i) {
      product.c[static_cast<size_t>(thread)][i] = at(thread, i);
    }
  }
  runner_.flops += int64_t{2} * kWarpgroupRows * columns * kBoxBytes;
}

}  // namespace gpu::emulation
