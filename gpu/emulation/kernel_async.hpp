// The portability layer's barriers, copies of tiles and products of warpgroups on the host.
#pragma once

#include <cstdint>

#include "gpu/emulation/block_runner.hpp"
#include "gpu/emulation/tensor_map.hpp"

namespace gpu::emulation {

TensorMap make_tensor_map(
    const void* start, int64_t num_rows, int64_t row_bytes, int64_t row_stride_bytes, int box_rows);
void fence_async();

}  // namespace gpu::emulation

namespace gpu::DSV3_BACKEND {

using emulation::Site;
using TensorMap = emulation::TensorMap;

// Rows [num_rows][row_bytes] in device memory, row_stride_bytes apart; boxes of box_rows rows. Start and stride are multiples of 16.
inline TensorMap make_tensor_map(
    const void* start, int64_t num_rows, int64_t row_bytes, int64_t row_stride_bytes, int box_rows) {
  return emulation::make_tensor_map(start, num_rows, row_bytes, row_stride_bytes, box_rows);
}

// In shared memory; only the functions below touch it.
struct Barrier {
  uint64_t word;
};

// By one thread; the others see it behind fence_barrier_init() and sync_threads().
inline void init_barrier(Barrier& barrier, int num_arrivals, Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().init_barrier(&barrier, num_arrivals, site);
}
inline void fence_barrier_init() {}
inline void arrive(Barrier& barrier, Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().arrive(&barrier, 0, site);
}
// Arrives, and lets the phase wait for so many bytes of tiles.
inline void arrive_and_expect(Barrier& barrier, int num_bytes, Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().arrive(&barrier, num_bytes, site);
}
// Until the phase of this parity, 0 for the first, is complete. Parity 1 of a new barrier counts as complete.
inline void wait(Barrier& barrier, int parity, Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().wait(&barrier, parity, site);
}

// Copies a box, 128 bytes from `byte` on of rows from `row` on, to a multiple of 1024 in shared memory; zeros outside. 16-byte chunk c
// of row r lies at chunk c ^ (r % 8). One thread calls; `barrier` is told of box_rows * 128 bytes.
inline void load_tile(
    void* to, const TensorMap& map, int64_t byte, int64_t row, Barrier& barrier, Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().load_tile(to, map, byte, row, &barrier, site);
}
// What this thread wrote to shared memory becomes visible to products of warpgroups.
inline void fence_async() {
  emulation::fence_async();
}

// Before the first product, and again whenever the accumulators have been touched.
inline void fence_products() {
  emulation::BlockRunner::current()->engine().fence_products();
}
// c = a b, or c += a b: a is 64 rows and b kColumns rows of 128 E4M3 codes, laid out as load_tile does. All 128 threads of a warpgroup
// call. Element i of c is row 16 warp + lane / 4 + 8 (i % 4 / 2), column 8 (i / 4) + 2 (lane % 4) + i % 2. c may be read behind
// wait_products, a and b written.
template <int kColumns>
void multiply_warpgroup_e4m3(
    float (&c)[kColumns / 2], const void* a, const void* b, bool adds, Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().multiply({a, b, kColumns, adds, c}, site);
}
inline void commit_products(Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().commit_products(site);
}
// Until at most N of the latest groups are unfinished; c is what the finished ones give.
template <int N, int kShare>
void wait_products(float (&/*c*/)[kShare], Site site = Site::here()) {
  emulation::BlockRunner::current()->engine().wait_products(N, site);
}

}  // namespace gpu::DSV3_BACKEND
