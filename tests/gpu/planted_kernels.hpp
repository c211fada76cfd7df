// Small kernels with one fault each that can be switched on: what a checker is worth shows on them.
#pragma once

#include "gpu/portable/kernel.hpp"

namespace gpu::DSV3_BACKEND {

struct PlantedArguments {
  bool faulty = false;
  const float* in = nullptr;
  float* out = nullptr;
  int32_t* counter = nullptr;
  int length = 0;
};

// Shared memory of all planted kernels.
struct PlantedShared {
  float values[256];
  float copies[2][256];
  int32_t counts[32];
  int32_t is_last;
};

inline float* planted_values() {
  return shared_memory_as<PlantedShared>()->values;
}
inline int planted_thread() {
  return static_cast<int>(thread_idx().x);
}

// --- Barriers in one block ---
GPU_KERNEL no_barrier_before_reading_others(PlantedArguments a) {
  planted_values()[planted_thread()] = a.in[planted_thread()];
  if (!a.faulty) {
    sync_threads();
  }
  a.out[planted_thread()] = planted_values()[(planted_thread() + 32) % 256];
}
GPU_KERNEL no_barrier_before_broadcast(PlantedArguments a) {
  if (planted_thread() == 0) {
    planted_values()[0] = a.in[0];
  }
  if (!a.faulty) {
    sync_threads();
  }
  a.out[planted_thread()] = planted_values()[0];
}
GPU_KERNEL no_barrier_before_reuse(PlantedArguments a) {
  for (int round = 0; round < 2; ++round) {
    planted_values()[planted_thread()] = a.in[planted_thread()] + static_cast<float>(round);
    sync_threads();
    a.out[planted_thread()] = planted_values()[255 - planted_thread()];
    if (!a.faulty) {
      sync_threads();
    }
  }
}
GPU_KERNEL no_warp_barrier_before_lane_exchange(PlantedArguments a) {
  planted_values()[planted_thread()] = a.in[planted_thread()];
  if (!a.faulty) {
    sync_warp();
  }
  a.out[planted_thread()] = planted_values()[planted_thread() ^ 1];
}
// The shuffle moves registers and orders nothing.
GPU_KERNEL shuffle_taken_for_a_barrier(PlantedArguments a) {
  planted_values()[planted_thread()] = a.in[planted_thread()];
  shuffle_xor(kFullWarp, 0.0f, 1);
  if (!a.faulty) {
    sync_warp();
  }
  a.out[planted_thread()] = planted_values()[planted_thread() ^ 1];
}
GPU_KERNEL warp_barrier_for_a_block_exchange(PlantedArguments a) {
  planted_values()[planted_thread()] = a.in[planted_thread()];
  if (a.faulty) {
    sync_warp();
  } else {
    sync_threads();
  }
  a.out[planted_thread()] = planted_values()[255 - planted_thread()];
}
GPU_KERNEL warp_barrier_of_too_few_lanes(PlantedArguments a) {
  planted_values()[planted_thread()] = a.in[planted_thread()];
  const int lane = planted_thread() % kLanes;
  sync_warp(a.faulty ? (lane < 16 ? 0x0000FFFFU : 0xFFFF0000U) : kFullWarp);
  a.out[planted_thread()] = planted_values()[planted_thread() ^ 16];
}
// All lanes read what one of them then writes.
GPU_KERNEL no_warp_barrier_before_overwriting(PlantedArguments a) {
  const int first = planted_thread() / kLanes * kLanes;
  if (planted_thread() == first) {
    planted_values()[first] = a.in[first];
  }
  sync_warp();
  const float seen = planted_values()[first];
  if (!a.faulty) {
    sync_warp();
  }
  if (planted_thread() == first) {
    planted_values()[first] = 0;
  }
  a.out[planted_thread()] = seen;
}
GPU_KERNEL two_writers(PlantedArguments a) {
  const int slot = a.faulty ? planted_thread() / 2 : planted_thread();
  planted_values()[slot] = a.in[planted_thread()];
  sync_threads();
  a.out[planted_thread()] = planted_values()[planted_thread()];
}
GPU_KERNEL counts_not_cleared_behind_a_barrier(PlantedArguments a) {
  int32_t* counts = shared_memory_as<PlantedShared>()->counts;
  if (planted_thread() < 32) {
    counts[planted_thread()] = 0;
  }
  if (!a.faulty) {
    sync_threads();
  }
  atomic_add(&counts[planted_thread() % 32], 1);
  sync_threads();
  a.out[planted_thread()] = static_cast<float>(counts[planted_thread() % 32]);
}
GPU_KERNEL shared_count_without_atomic(PlantedArguments a) {
  int32_t* counts = shared_memory_as<PlantedShared>()->counts;
  if (planted_thread() < 32) {
    counts[planted_thread()] = 0;
  }
  sync_threads();
  if (a.faulty) {
    counts[planted_thread() % 32] = counts[planted_thread() % 32] + 1;
  } else {
    atomic_add(&counts[planted_thread() % 32], 1);
  }
  sync_threads();
  a.out[planted_thread()] = static_cast<float>(counts[planted_thread() % 32]);
}

// --- Meetings that not everybody comes to ---
GPU_KERNEL barrier_of_half_the_block(PlantedArguments a) {
  if (!a.faulty || planted_thread() < 128) {
    sync_threads();
  }
  a.out[planted_thread()] = 0;
}
GPU_KERNEL exit_before_barrier(PlantedArguments a) {
  if (a.faulty && planted_thread() >= a.length) {
    return;
  }
  sync_threads();
  a.out[planted_thread()] = 0;
}
GPU_KERNEL barriers_in_two_branches(PlantedArguments a) {
  if (a.faulty && planted_thread() < 128) {
    sync_threads();
  } else {
    sync_threads();
  }
  a.out[planted_thread()] = 0;
}
GPU_KERNEL full_mask_in_half_a_warp(PlantedArguments a) {
  float x = a.in[planted_thread()];
  if (!a.faulty || planted_thread() % kLanes < 16) {
    x += shuffle_xor(kFullWarp, x, 1);
  }
  a.out[planted_thread()] = x;
}
GPU_KERNEL mask_without_the_caller(PlantedArguments a) {
  a.out[planted_thread()] = shuffle_xor(a.faulty ? 0x7FFFFFFFU : kFullWarp, a.in[planted_thread()], 1);
}
GPU_KERNEL two_collectives_at_once(PlantedArguments a) {
  float x = a.in[planted_thread()];
  if (a.faulty && planted_thread() % 2 == 0) {
    x += static_cast<float>(ballot(kFullWarp, true));
  } else {
    x += shuffle_xor(kFullWarp, x, 2);
  }
  a.out[planted_thread()] = x;
}
GPU_KERNEL wait_for_another_block(PlantedArguments a) {
  if (a.faulty) {
    while (atomic_add(a.counter, 0) < 1000) {
      spin_hint();
    }
  }
  a.out[planted_thread()] = 0;
}

// --- Asynchronous copies: 64 threads copy 16 bytes each ---
inline void issue_copy(const PlantedArguments& a, int stage) {
  if (planted_thread() < 64) {
    copy_async_16(&shared_memory_as<PlantedShared>()->copies[stage][planted_thread() * 4], a.in + planted_thread() * 4);
  }
}
inline float copied(int stage) {
  return shared_memory_as<PlantedShared>()->copies[stage][255 - planted_thread()];
}
GPU_KERNEL copy_not_waited_for(PlantedArguments a) {
  issue_copy(a, 0);
  commit_copies();
  if (!a.faulty) {
    wait_copies<0>();
  }
  sync_threads();
  a.out[planted_thread()] = copied(0);
}
GPU_KERNEL copy_not_committed(PlantedArguments a) {
  issue_copy(a, 0);
  if (!a.faulty) {
    commit_copies();
  }
  wait_copies<0>();
  sync_threads();
  a.out[planted_thread()] = copied(0);
}
GPU_KERNEL copy_waited_for_behind_the_barrier(PlantedArguments a) {
  issue_copy(a, 0);
  commit_copies();
  if (a.faulty) {
    sync_threads();
    wait_copies<0>();
  } else {
    wait_copies<0>();
    sync_threads();
  }
  a.out[planted_thread()] = copied(0);
}
GPU_KERNEL last_stage_of_a_pipeline_not_waited_for(PlantedArguments a) {
  issue_copy(a, 0);
  commit_copies();
  issue_copy(a, 1);
  commit_copies();
  wait_copies<1>();
  sync_threads();
  float sum = copied(0);
  if (!a.faulty) {
    wait_copies<0>();
  }
  sync_threads();
  a.out[planted_thread()] = sum + copied(1);
}
GPU_KERNEL stage_refilled_while_it_is_read(PlantedArguments a) {
  issue_copy(a, 0);
  commit_copies();
  wait_copies<0>();
  sync_threads();
  float sum = copied(0);
  if (!a.faulty) {
    sync_threads();
  }
  issue_copy(a, 0);
  commit_copies();
  wait_copies<0>();
  sync_threads();
  a.out[planted_thread()] = sum + copied(0);
}

// --- Addresses ---
GPU_KERNEL shared_memory_too_small(PlantedArguments a) {
  planted_values()[planted_thread()] = 0;  // the launch asks for less when faulty
  a.out[planted_thread()] = 0;
}
GPU_KERNEL misaligned_vector(PlantedArguments a) {
  a.out[planted_thread()] = load_vector<4>(a.in + (a.faulty ? 1 : 0)).at[0];
}
GPU_KERNEL read_behind_the_end(PlantedArguments a) {
  a.out[planted_thread()] = a.in[planted_thread() + (a.faulty ? 1 : 0)];
}
GPU_KERNEL write_behind_the_end(PlantedArguments a) {
  a.out[planted_thread() + (a.faulty ? 1 : 0)] = a.in[planted_thread()];
}
GPU_KERNEL length_minus_one_of_nothing(PlantedArguments a) {
  const auto length = static_cast<uint32_t>(a.length);
  a.out[planted_thread()] = length == 0 && !a.faulty ? 0 : a.in[length - 1];
}
// As where a barrier is missing: shared memory that nobody has written yet holds -1 for an index.
GPU_KERNEL index_before_shared_memory(PlantedArguments a) {
  int32_t* const next = shared_memory_as<int32_t>();
  if (!a.faulty) {
    next[planted_thread()] = planted_thread();
    sync_threads();
  }
  a.out[planted_thread()] = static_cast<float>(next[next[planted_thread()]]);
}
GPU_KERNEL null_pointer(PlantedArguments a) {
  const float* const in = a.faulty ? nullptr : a.in;
  a.out[planted_thread()] = in[planted_thread()];
}
// A row offset beyond 2^31 elements.
GPU_KERNEL offset_in_32_bits(PlantedArguments a) {
  const int64_t row = a.length;
  constexpr int kRowLen = 16384;
  const int64_t offset = a.faulty ? static_cast<int32_t>(static_cast<uint32_t>(row) * kRowLen) : row * kRowLen;
  a.out[offset + planted_thread()] = a.in[planted_thread()];
}

// --- Between blocks ---
GPU_KERNEL count_of_blocks_without_atomic(PlantedArguments a) {
  if (planted_thread() == 0) {
    if (a.faulty) {
      a.counter[0] = a.counter[0] + 1;
    } else {
      atomic_add(a.counter, 1);
    }
  }
}
enum class Arrival { kRight, kNoFenceBefore, kNoFenceAfter, kNoBarrierBefore };
// Each block writes a part, the last one to arrive reads all of them.
template <Arrival kArrival>
GPU_KERNEL last_block_reads_all(PlantedArguments a) {
  const Arrival arrival = a.faulty ? kArrival : Arrival::kRight;
  auto& shared = *shared_memory_as<PlantedShared>();
  a.out[block_idx().x * 256 + thread_idx().x] = a.in[planted_thread()];
  if (arrival != Arrival::kNoBarrierBefore) {
    sync_threads();
  }
  if (planted_thread() == 0) {
    if (arrival != Arrival::kNoFenceBefore) {
      thread_fence();
    }
    shared.is_last = atomic_add(a.counter, 1) == static_cast<int32_t>(grid_dim().x) - 1 ? 1 : 0;
    if (arrival != Arrival::kNoFenceAfter) {
      thread_fence();
    }
  }
  sync_threads();
  if (shared.is_last != 0) {
    float sum = 0;
    for (unsigned block = 0; block < grid_dim().x; ++block) {
      sum += a.out[block * 256 + thread_idx().x];
    }
    a.out[grid_dim().x * 256 + thread_idx().x] = sum;
  }
}

// --- Between launches ---
GPU_KERNEL write_values(PlantedArguments a) {
  a.out[planted_thread()] = 1;
}
GPU_KERNEL read_early(PlantedArguments a) {
  if (!a.faulty) {
    wait_for_earlier_grids();
  }
  a.out[planted_thread()] = a.in[planted_thread()];
}
GPU_KERNEL one_thread_waits_for_all(PlantedArguments a) {
  if (planted_thread() == 0) {
    wait_for_earlier_grids();
  }
  if (!a.faulty) {
    sync_threads();
  }
  a.out[planted_thread()] = a.in[planted_thread()];
}
GPU_KERNEL read_values(PlantedArguments a) {
  a.out[planted_thread()] = a.in[planted_thread()];
}

}  // namespace gpu::DSV3_BACKEND
