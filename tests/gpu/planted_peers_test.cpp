// Planted faults between devices: each is found in every order, whichever rank comes first, and the same kernels without the fault give
// no report. Compiled for checking.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>

#include "tests/gpu/ranks.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

using emulation::Fault;
using emulation::FaultKind;

constexpr int kLen = 64;  // threads of a block, and elements of a message

struct PeerArguments {
  bool faulty = false;
  const float* in = nullptr;
  float* out = nullptr;
  float* copy = nullptr;              // exchange_values: of what came in
  uint32_t* raised = nullptr;         // the flag that the kernel sets
  const uint32_t* awaited = nullptr;  // the flag that it waits for; null: none
  uint32_t epoch = 1;
  int32_t* arrivals = nullptr;  // last_block_passes_on
};

int here() {
  return static_cast<int>(thread_idx().x);
}
void wait_in_one_thread(const PeerArguments& a) {
  if (here() == 0 && a.awaited != nullptr) {
    wait_for_flag(a.awaited, a.epoch);
  }
}
void raise(const PeerArguments& a) {
  if (here() == 0 && a.raised != nullptr) {
    store_release_system(a.raised, a.epoch);
  }
}

GPU_KERNEL move_values(PeerArguments a) {
  wait_in_one_thread(a);
  sync_threads();
  a.out[here()] = a.in[here()];
  sync_threads();
  raise(a);
}
GPU_KERNEL move_without_waiting(PeerArguments a) {
  if (!a.faulty) {
    wait_in_one_thread(a);
  }
  sync_threads();
  a.out[here()] = a.in[here()];
}
GPU_KERNEL flag_before_data(PeerArguments a) {
  if (a.faulty) {
    raise(a);
  }
  a.out[here()] = a.in[here()];
  sync_threads();
  if (!a.faulty) {
    raise(a);
  }
}
GPU_KERNEL flag_without_a_barrier(PeerArguments a) {
  a.out[here()] = a.in[here()];
  if (!a.faulty) {
    sync_threads();
  }
  raise(a);
}
GPU_KERNEL wait_without_a_barrier(PeerArguments a) {
  wait_in_one_thread(a);
  if (!a.faulty) {
    sync_threads();
  }
  a.out[here()] = a.in[here()];
}
GPU_KERNEL flag_by_a_plain_store(PeerArguments a) {
  a.out[here()] = a.in[here()];
  sync_threads();
  if (a.faulty && here() == 0) {
    *a.raised = a.epoch;
  } else {
    raise(a);
  }
}
GPU_KERNEL write_behind_the_peers_end(PeerArguments a) {
  a.out[here() + (a.faulty ? 1 : 0)] = a.in[here()];
}
// Writes to the peer, then reads what the peer wrote here.
GPU_KERNEL exchange_values(PeerArguments a) {
  a.out[here()] = static_cast<float>(a.epoch);
  sync_threads();
  raise(a);
  wait_in_one_thread(a);
  sync_threads();
  a.copy[here()] = a.in[here()];
}

// One block hears the flag, the last one to arrive raises its own.
GPU_KERNEL last_block_passes_on(PeerArguments a) {
  if (block_idx().x == 0 && !a.faulty) {
    wait_in_one_thread(a);
  }
  if (here() == 0) {
    thread_fence();
    const bool is_last = atomic_add(a.arrivals, 1) == static_cast<int32_t>(grid_dim().x) - 1;
    thread_fence();
    if (is_last) {
      raise(a);
    }
  }
}

// Memory of each rank, all flags zero.
struct World {
  World(const emulation::Order& order, int num_ranks) : ranks(num_ranks, {.order = order, .peer_timeout_s = 20}) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      Device& device = ranks.device(rank);
      const Stream stream = ranks.stream(rank);
      values.emplace_back(std::make_unique<Buffer<float>>(device, stream, std::vector<float>(kLen, 1), "values"));
      inbox.emplace_back(std::make_unique<Buffer<float>>(device, stream, 2 * kLen, "inbox"));
      out.emplace_back(std::make_unique<Buffer<float>>(device, stream, kLen, "out"));
      flags.emplace_back(std::make_unique<Buffer<uint32_t>>(device, stream, std::vector<uint32_t>(2, 0), "flags"));
    }
    arrivals = std::make_unique<Buffer<int32_t>>(ranks.device(1), ranks.stream(1), std::vector<int32_t>{0}, "arrivals");
  }
  void launch(int rank,
              const char* name,
              void (*kernel)(PeerArguments),
              const PeerArguments& arguments,
              unsigned num_blocks = 1) {
    gpu::DSV3_BACKEND::launch(
        ranks.stream(rank), {.name = name, .grid = {num_blocks}, .block = {kLen}}, kernel, arguments);
  }
  // From rank 0 to rank 1.
  PeerArguments sending(bool faulty) {
    return {.faulty = faulty, .in = values[0]->data(), .out = inbox[1]->data(), .raised = flags[1]->data()};
  }
  PeerArguments receiving(bool faulty) {
    return {.faulty = faulty, .in = inbox[1]->data(), .out = out[1]->data(), .awaited = flags[1]->data()};
  }
  void send_and_receive(void (*sender)(PeerArguments), void (*receiver)(PeerArguments), bool faulty) {
    ranks.run([&](int rank) {
      rank == 0 ? launch(0, "send", sender, sending(faulty)) : launch(1, "receive", receiver, receiving(faulty));
    });
  }

  Ranks ranks;
  std::vector<std::unique_ptr<Buffer<float>>> values;
  std::vector<std::unique_ptr<Buffer<float>>> inbox;
  std::vector<std::unique_ptr<Buffer<float>>> out;
  std::vector<std::unique_ptr<Buffer<uint32_t>>> flags;
  std::unique_ptr<Buffer<int32_t>> arrivals;  // of rank 1
};

struct Planted {
  const char* name;
  FaultKind kind;
  std::function<void(World&, bool faulty)> run;
  int num_ranks = 2;
};

// Two messages through one buffer; the receiver answers each.
void send_twice(World& w, uint32_t awaited_for_second, bool waits_for_answer) {
  w.ranks.run([&](int rank) {
    for (const uint32_t epoch : {1U, 2U}) {
      PeerArguments a = rank == 0 ? w.sending(false) : w.receiving(false);
      if (rank == 0) {
        a.epoch = epoch;
        w.launch(0, "send", move_values, a);
        if (waits_for_answer) {
          a = {.in = w.values[0]->data(), .out = w.out[0]->data(), .awaited = w.flags[0]->data(), .epoch = epoch};
          w.launch(0, "hear_answer", move_values, a);
        }
      } else {
        a.epoch = epoch == 1 ? 1 : awaited_for_second;
        w.launch(1, "receive", move_values, a);
        a = {.in = w.values[1]->data(), .out = w.out[1]->data(), .raised = w.flags[0]->data(), .epoch = epoch};
        w.launch(1, "answer", move_values, a);
      }
    }
  });
}

const std::vector<Planted>& all_planted() {
  static const std::vector<Planted> planted = {
      {"read_before_the_flag",
       FaultKind::kRace,
       [](World& w, bool faulty) { w.send_and_receive(move_values, move_without_waiting, faulty); }},
      {"flag_before_data",
       FaultKind::kRace,
       [](World& w, bool faulty) { w.send_and_receive(flag_before_data, move_values, faulty); }},
      {"no_barrier_before_the_flag",
       FaultKind::kRace,
       [](World& w, bool faulty) { w.send_and_receive(flag_without_a_barrier, move_values, faulty); }},
      {"no_barrier_after_the_wait",
       FaultKind::kRace,
       [](World& w, bool faulty) { w.send_and_receive(move_values, wait_without_a_barrier, faulty); }},
      {"flag_by_a_plain_store",
       FaultKind::kRace,
       [](World& w, bool faulty) { w.send_and_receive(flag_by_a_plain_store, move_values, faulty); }},
      {"epoch_of_the_step_before",
       FaultKind::kRace,
       [](World& w, bool faulty) { send_twice(w, faulty ? 1 : 2, true); }},
      {"buffer_used_again_without_an_answer",
       FaultKind::kRace,
       [](World& w, bool faulty) { send_twice(w, 2, !faulty); }},
      {"one_buffer_where_two_are_needed",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         w.ranks.run([&](int rank) {
           const auto other = static_cast<size_t>(1 - rank);
           for (uint32_t epoch = 1; epoch <= 4; ++epoch) {
             const int slot = faulty ? 0 : static_cast<int>(epoch % 2) * kLen;
             w.launch(rank,
                      "exchange",
                      exchange_values,
                      {.in = w.inbox[static_cast<size_t>(rank)]->data() + slot,
                       .out = w.inbox[other]->data() + slot,
                       .copy = w.out[static_cast<size_t>(rank)]->data(),
                       .raised = w.flags[other]->data(),
                       .awaited = w.flags[static_cast<size_t>(rank)]->data(),
                       .epoch = epoch});
           }
         });
       }},
      // Rank 1 tells rank 2 that rank 0 has written; faulty, it has not heard it itself.
      {"hearsay_of_a_third_rank",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         w.ranks.run([&](int rank) {
           const PeerArguments of_rank[] = {
               {.in = w.values[0]->data(), .out = w.inbox[2]->data(), .raised = w.flags[1]->data()},
               {.in = w.values[1]->data(),
                .out = w.out[1]->data(),
                .raised = w.flags[2]->data(),
                .awaited = faulty ? nullptr : w.flags[1]->data()},
               {.in = w.inbox[2]->data(), .out = w.out[2]->data(), .awaited = w.flags[2]->data()}};
           w.launch(rank, "pass_on", move_values, of_rank[rank]);
         });
       },
       3},
      // The same from block to block of rank 1.
      {"hearsay_of_another_block",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         w.ranks.run([&](int rank) {
           if (rank == 1) {
             w.launch(1,
                      "pass_on",
                      last_block_passes_on,
                      {.faulty = faulty,
                       .raised = w.flags[2]->data(),
                       .awaited = w.flags[1]->data(),
                       .arrivals = w.arrivals->data()},
                      3);
           } else if (rank == 0) {
             w.launch(0,
                      "send",
                      move_values,
                      {.in = w.values[0]->data(), .out = w.inbox[2]->data(), .raised = w.flags[1]->data()});
           } else {
             w.launch(2,
                      "receive",
                      move_values,
                      {.in = w.inbox[2]->data(), .out = w.out[2]->data(), .awaited = w.flags[2]->data()});
           }
         });
       },
       3},
      // Each rank fills its own memory; faulty, the sender does not wait for the receiver's host.
      {"memory_prepared_without_a_meeting",
       FaultKind::kRace,
       [](World& w, bool faulty) {
         w.ranks.run([&](int rank) {
           if (rank == 1) {
             w.ranks.device(1).enqueue_fill(w.ranks.stream(1), w.inbox[1]->data(), std::byte{0}, kLen * 4);
             w.ranks.device(1).synchronize();
           }
           if (!faulty) {
             w.ranks.device(rank).meet_peers();
           }
           rank == 0 ? w.launch(0, "send", move_values, w.sending(false))
                     : w.launch(1, "receive", move_values, w.receiving(false));
         });
       }},
      {"write_behind_the_peers_end",
       FaultKind::kOutOfBounds,
       [](World& w, bool faulty) {
         w.ranks.run([&](int rank) {
           if (rank == 0) {
             w.launch(0,
                      "write_behind",
                      write_behind_the_peers_end,
                      {.faulty = faulty, .in = w.values[0]->data(), .out = w.out[1]->data()});
           }
         });
       }},
  };
  return planted;
}

class PlantedPeerFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedPeerFault, IsFoundInEveryOrder_AndOnlyWhenItIsThere) {
  for (const auto& order : kOrders) {
    World clean(order, GetParam().num_ranks);
    EXPECT_NO_THROW(GetParam().run(clean, false)) << order_name(order);
    World faulty(order, GetParam().num_ranks);
    try {
      GetParam().run(faulty, true);
      ADD_FAILURE() << "not found in order " << order_name(order);
    } catch (const Fault& fault) {
      EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(GetParam().kind))
          << order_name(order) << ": " << fault.what();
      if (order.kind == OrderKind::kForward) {
        RecordProperty("report", fault.what());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlantedPeerFault, testing::ValuesIn(all_planted()), [](const auto& planted) {
  return std::string(planted.param.name);
});

// The peer's kernel never runs, and its host says nothing.
TEST(PeerFlag, ThatDoesNotComeInTime_IsADeadlockThatNamesTheEpoch) {
  Ranks ranks(1, {.peer_timeout_s = 0.2});
  const Buffer<float> values(ranks.device(0), ranks.stream(0), std::vector<float>(kLen, 1), "values");
  const Buffer<uint32_t> flag(ranks.device(0), ranks.stream(0), std::vector<uint32_t>{6}, "flag");
  try {
    ranks.run([&](int) {
      launch(ranks.stream(0),
             {.name = "receive", .grid = {1}, .block = {kLen}},
             move_values,
             PeerArguments{.in = values.data(), .out = values.data(), .awaited = flag.data(), .epoch = 7});
    });
    FAIL() << "no deadlock";
  } catch (const Fault& fault) {
    EXPECT_EQ(static_cast<int>(fault.kind), static_cast<int>(FaultKind::kDeadlock));
    EXPECT_NE(std::string(fault.what()).find("flag to reach 7; it is 6"), std::string::npos) << fault.what();
  }
}

TEST(PeerFlag, OfARankThatFailed_EndsTheWaitAtOnce_WithItsReason) {
  World w({OrderKind::kForward, 0}, 2);
  std::string of_waiting_rank;
  const auto start = std::chrono::steady_clock::now();
  try {
    w.ranks.run([&](int rank) {
      if (rank == 0) {
        throw std::runtime_error("rank 0 has no weights");
      }
      w.launch(1, "receive", move_values, w.receiving(false));
      try {
        w.ranks.device(1).synchronize();
      } catch (const Fault& fault) {
        of_waiting_rank = fault.what();
        throw;
      }
    });
    FAIL() << "no failure";
  } catch (const std::exception& first) {
    EXPECT_STREQ(first.what(), "rank 0 has no weights");
  }
  EXPECT_NE(of_waiting_rank.find("a peer failed: rank 0 has no weights"), std::string::npos) << of_waiting_rank;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // half of the time-out
}

}  // namespace
}  // namespace gpu::DSV3_BACKEND
