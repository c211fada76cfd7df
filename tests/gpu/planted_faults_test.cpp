// Planted faults: each is found in every order, and the same kernels without the fault give no report. Compiled for checking.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tests/gpu/harness.hpp"
#include "tests/gpu/planted_kernels.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

using emulation::Event;
using emulation::Fault;
using emulation::FaultKind;
using emulation::Graph;

constexpr int64_t kOutLen = 5 * 256;

// What the scenarios run on. `in` has exactly 256 elements, so that the next one is nobody's.
struct World {
  explicit World(const emulation::Order& order) : device({.order = order, .memory_bytes = int64_t{64} << 30}) {
    const std::vector<float> numbers(256, 1.0f);
    device.enqueue_copy(stream, in.data(), numbers.data(), 256 * 4);
    device.enqueue_fill(stream, counter.data(), std::byte{0}, 4);
    device.synchronize();
  }
  Device device;
  Stream stream = device.create_stream();
  Stream other = device.create_stream();
  Buffer<float> in{device, stream, 256, "in"};
  Buffer<float> out{device, stream, kOutLen, "out"};
  Buffer<float> exact{device, stream, 256, "exact"};
  Buffer<int32_t> counter{device, stream, 1, "counter"};
};

struct Planted {
  const char* name;
  FaultKind kind;
  std::function<void(World&, bool faulty)> run;
};

using Kernel = void (*)(PlantedArguments);

Planted one_block(const char* name, FaultKind kind, Kernel kernel, unsigned num_blocks = 1) {
  return {name, kind, [name, kernel, num_blocks](World& w, bool faulty) {
            launch(w.stream,
                   {.name = name, .grid = {num_blocks}, .block = {256}, .shared_bytes = sizeof(PlantedShared)},
                   kernel,
                   PlantedArguments{faulty, w.in.data(), w.out.data(), w.counter.data(), 100});
            w.device.synchronize();
          }};
}
#define PLANTED(kernel, kind) one_block(#kernel, FaultKind::kind, kernel)

void launch_one(Stream stream, const char* name, Kernel kernel, const PlantedArguments& arguments, bool early = false) {
  launch(stream,
         {.name = name, .grid = {1}, .block = {256}, .shared_bytes = sizeof(PlantedShared), .early = early},
         kernel,
         arguments);
}

void write_then_read(World& w, Kernel reader, bool faulty) {
  launch_one(w.stream, "write_values", write_values, {.out = w.out.data()});
  launch_one(w.stream, "reader", reader, {.faulty = faulty, .in = w.out.data(), .out = w.out.data() + 256}, true);
  w.device.synchronize();
}

const std::vector<Planted>& all_planted() {
  static const std::vector<Planted> planted = {
      PLANTED(no_barrier_before_reading_others, kRace),
      PLANTED(no_barrier_before_broadcast, kRace),
      PLANTED(no_barrier_before_reuse, kRace),
      PLANTED(no_warp_barrier_before_lane_exchange, kRace),
      PLANTED(shuffle_taken_for_a_barrier, kRace),
      PLANTED(warp_barrier_for_a_block_exchange, kRace),
      PLANTED(warp_barrier_of_too_few_lanes, kRace),
      PLANTED(no_warp_barrier_before_overwriting, kRace),
      PLANTED(two_writers, kRace),
      PLANTED(counts_not_cleared_behind_a_barrier, kRace),
      PLANTED(shared_count_without_atomic, kRace),
      PLANTED(barrier_of_half_the_block, kDivergence),
      PLANTED(exit_before_barrier, kDivergence),
      PLANTED(barriers_in_two_branches, kDivergence),
      PLANTED(full_mask_in_half_a_warp, kDeadlock),
      PLANTED(mask_without_the_caller, kDivergence),
      PLANTED(two_collectives_at_once, kDivergence),
      PLANTED(wait_for_another_block, kDeadlock),
      PLANTED(copy_not_waited_for, kRace),
      PLANTED(copy_not_committed, kRace),
      PLANTED(copy_waited_for_behind_the_barrier, kRace),
      PLANTED(last_stage_of_a_pipeline_not_waited_for, kRace),
      PLANTED(stage_refilled_while_it_is_read, kRace),
      PLANTED(misaligned_vector, kMisaligned),
      PLANTED(read_behind_the_end, kOutOfBounds),
      PLANTED(index_before_shared_memory, kSharedOverrun),
      PLANTED(null_pointer, kOutOfBounds),
      one_block("count_of_blocks_without_atomic", FaultKind::kRace, count_of_blocks_without_atomic, 4),
      one_block("no_fence_before_arrival", FaultKind::kRace, last_block_reads_all<Arrival::kNoFenceBefore>, 4),
      one_block("no_fence_after_arrival", FaultKind::kRace, last_block_reads_all<Arrival::kNoFenceAfter>, 4),
      one_block("no_barrier_before_arrival", FaultKind::kRace, last_block_reads_all<Arrival::kNoBarrierBefore>, 4),
      {"shared_memory_too_small",
       FaultKind::kSharedOverrun,
       [](World& w, bool faulty) {
         launch(w.stream,
                {.name = "shared_memory_too_small", .grid = {1}, .block = {256}, .shared_bytes = faulty ? 1020 : 1024},
                shared_memory_too_small,
                PlantedArguments{.out = w.out.data()});
         w.device.synchronize();
       }},
      {"write_behind_the_end",
       FaultKind::kOutOfBounds,
       [](World& w, bool faulty) {
         launch_one(w.stream,
                    "write_behind_the_end",
                    write_behind_the_end,
                    {.faulty = faulty, .in = w.in.data(), .out = w.exact.data()});
         w.device.synchronize();
       }},
      {"length_minus_one_of_nothing",
       FaultKind::kOutOfBounds,
       [](World& w, bool faulty) {
         launch_one(w.stream,
                    "length_minus_one",
                    length_minus_one_of_nothing,
                    {.faulty = faulty, .in = w.in.data(), .out = w.out.data()});
         w.device.synchronize();
       }},
      {"offset_in_32_bits",
       FaultKind::kOutOfBounds,
       [](World& w, bool faulty) {
         constexpr int kRow = 140000;  // times 16384 elements: 2.3e9
         const Buffer<float> huge(w.device, w.stream, int64_t{kRow + 1} * 16384, "huge");
         launch_one(w.stream,
                    "offset_in_32_bits",
                    offset_in_32_bits,
                    {.faulty = faulty, .in = w.in.data(), .out = huge.data(), .length = kRow});
         w.device.synchronize();
       }},
      {"stale_pointer",
       FaultKind::kOutOfBounds,
       [](World& w, bool faulty) {
         std::optional<Buffer<float>> gone(std::in_place, w.device, w.stream, 256, "gone");
         float* const pointer = gone->data();
         if (faulty) {
           gone.reset();
         }
         launch_one(w.stream, "stale_pointer", write_values, {.out = pointer});
         w.device.synchronize();
       }},
      {"read_before_the_earlier_grid_is_done",
       FaultKind::kRace,
       [](World& w, bool faulty) { write_then_read(w, read_early, faulty); }},
      {"one_thread_waits_for_the_earlier_grid",
       FaultKind::kRace,
       [](World& w, bool faulty) { write_then_read(w, one_thread_waits_for_all, faulty); }},
      {"streams_without_event",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         launch_one(w.stream, "write_values", write_values, {.out = w.out.data()});
         if (!faulty) {
           w.device.wait(w.other, w.device.record(w.stream));
         }
         launch_one(w.other, "read_values", read_values, {.in = w.out.data(), .out = w.out.data() + 256});
         w.device.synchronize();
       }},
      {"event_recorded_too_early",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         const Event early = w.device.record(w.stream);
         launch_one(w.stream, "write_values", write_values, {.out = w.out.data()});
         w.device.wait(w.other, faulty ? early : w.device.record(w.stream));
         launch_one(w.other, "read_values", read_values, {.in = w.out.data(), .out = w.out.data() + 256});
         w.device.synchronize();
       }},
      {"copy_on_another_stream",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         std::vector<float> host(256);
         launch_one(w.stream, "write_values", write_values, {.out = w.out.data()});
         w.device.enqueue_copy(faulty ? w.other : w.stream, host.data(), w.out.data(), 256 * 4);
         w.device.synchronize();
       }},
      {"graph_without_a_dependency",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         w.device.begin_capture(w.stream);
         launch_one(w.stream, "write_values", write_values, {.out = w.out.data()});
         const Event written = w.device.record(w.stream);
         launch_one(w.stream, "write_values", write_values, {.out = w.out.data() + 512});
         w.device.wait(w.other, written);
         // Faulty: reads what the node after the fork writes.
         launch_one(
             w.other, "read_values", read_values, {.in = w.out.data() + (faulty ? 512 : 0), .out = w.out.data() + 256});
         w.device.wait(w.stream, w.device.record(w.other));
         const Graph graph = w.device.end_capture(w.stream);
         w.device.launch(w.stream, graph);
         w.device.launch(w.stream, graph);
         w.device.synchronize();
       }},
      {"capture_not_joined",
       FaultKind::kBadStream,
       [](World& w, bool faulty) {
         w.device.begin_capture(w.stream);
         launch_one(w.stream, "write_values", write_values, {.out = w.out.data()});
         w.device.wait(w.other, w.device.record(w.stream));
         launch_one(w.other, "read_values", read_values, {.in = w.out.data(), .out = w.out.data() + 256});
         if (!faulty) {
           w.device.wait(w.stream, w.device.record(w.other));
         }
         (void)w.device.end_capture(w.stream);
       }},
      {"allocation_while_capturing",
       FaultKind::kBadStream,
       [](World& w, bool faulty) {
         w.device.begin_capture(w.stream);
         const auto end = [&] { (void)w.device.end_capture(w.stream); };
         try {
           if (faulty) {
             (void)w.device.allocate(256, "too late");
           }
         } catch (...) {
           end();  // the world releases its buffers
           throw;
         }
         end();
       }},
      {"too_much_memory",
       FaultKind::kOutOfMemory,
       [](World& w, bool faulty) {
         w.device.release(w.device.allocate(faulty ? int64_t{65} << 30 : 1024, "weights"));
       }},
      {"too_many_threads",
       FaultKind::kBadLaunch,
       [](World& w, bool faulty) {
         launch(w.stream,
                {.name = "too_many_threads", .grid = {1}, .block = {faulty ? 1056U : 256U}},
                write_values,
                PlantedArguments{.out = w.out.data()});
         w.device.synchronize();
       }},
      {"too_much_shared_memory",
       FaultKind::kBadLaunch,
       [](World& w, bool faulty) {
         launch(
             w.stream,
             {.name = "too_much_shared_memory", .grid = {1}, .block = {256}, .shared_bytes = faulty ? 240000 : 230000},
             write_values,
             PlantedArguments{.out = w.out.data()});
         w.device.synchronize();
       }},
  };
  return planted;
}

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFoundInEveryOrder_AndOnlyWhenItIsThere) {
  for (const auto& order : kOrders) {
    World clean(order);
    EXPECT_NO_THROW(GetParam().run(clean, false)) << order_name(order);
    World faulty(order);
    try {
      GetParam().run(faulty, true);
      ADD_FAILURE() << "not found in order " << order_name(order);
    } catch (const Fault& fault) {
      EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(GetParam().kind))
          << order_name(order) << ": " << fault.what();
      EXPECT_EQ(std::string(fault.what()).find(":0:"), std::string::npos)
          << "a line that is not there: " << fault.what();
      if (order.kind == OrderKind::kForward) {
        RecordProperty("report", fault.what());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFault, testing::ValuesIn(all_planted()), [](const auto& planted) {
  return std::string(planted.param.name);
});

TEST(PlantedFaults, AreAtLeastThirty) {
  EXPECT_GE(all_planted().size(), 30U);
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
