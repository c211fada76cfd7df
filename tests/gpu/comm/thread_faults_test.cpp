// What becomes of a job of threads in which a rank throws, leaves early, stalls, or makes another call than the rest: every other rank
// ends, with one line that says where and why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "tests/gpu/comm/every_collective.hpp"
#include "tests/gpu/comm/queue_thread.hpp"

namespace gpu::comm {

namespace {

// For waits that something else than the time-out has to end; the test's own limit is shorter.
constexpr Timing kLong = {.timeout_s = 1000};
constexpr Timing kShort = {.timeout_s = 0.3};
// Long enough for every thread to get on, on a busy machine.
constexpr Timing kAmple = {.timeout_s = 1.5};

struct Outcome {
  std::string thrown;                // by run_thread_ranks
  std::map<int, std::string> lines;  // of the ranks that failed
  double seconds = 0;
};

Outcome run(const Timing& timing,
            const std::function<void(Communicator&)>& body,
            const std::function<void(int)>& also_on_failure = {}) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    run_thread_ranks(kNumRanks, timing, body, [&](int rank, const std::string& what) {
      EXPECT_TRUE(outcome.lines.emplace(rank, what).second) << "rank " << rank << " failed twice";
      if (also_on_failure) {
        also_on_failure(rank);
      }
    });
  } catch (const std::exception& e) {
    outcome.thrown = e.what();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

// All ranks but the faulty one failed, each with one line that holds the fragments.
void expect_lines(const Outcome& outcome, const std::vector<std::string>& fragments) {
  for (int rank = 0; rank < kNumRanks; ++rank) {
    if (rank == kFaulty) {
      continue;
    }
    ASSERT_TRUE(outcome.lines.contains(rank)) << "rank " << rank;
    const std::string& line = outcome.lines.at(rank);
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_EQ(line.rfind(fmt::format("rank {} of group world: ", rank), 0), 0U) << line;
    for (const auto& fragment : fragments) {
      EXPECT_NE(line.find(fragment), std::string::npos) << line;
    }
  }
}

class ThreadFaults : public testing::TestWithParam<size_t> {
 protected:
  [[nodiscard]] const Collective& collective() const { return every_collective()[GetParam()]; }
};
INSTANTIATE_TEST_SUITE_P(Every,
                         ThreadFaults,
                         testing::Range(size_t{0}, every_collective().size()),
                         [](const auto& param) {
                           std::string name = fmt::format("{}_{}", param.param, every_collective()[param.param].name);
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

TEST_P(ThreadFaults, ARankThatThrows_EndsTheOthers) {
  const auto outcome = run(kLong, [&](Communicator& group) {
    if (group.rank() == kFaulty) {
      throw std::runtime_error("disk full");
    }
    collective().call(group);
  });
  expect_lines(outcome, {collective().name, "rank 2 of world failed: disk full"});
  EXPECT_EQ(outcome.lines.at(kFaulty), "disk full");
  EXPECT_EQ(outcome.thrown, "disk full");
  EXPECT_LT(outcome.seconds, 30);
}

TEST_P(ThreadFaults, ARankThatReturns_EndsTheOthers) {
  const auto outcome = run(kLong, [&](Communicator& group) {
    if (group.rank() != kFaulty) {
      collective().call(group);
    }
  });
  expect_lines(outcome, {collective().name, "rank 2 left before"});
  EXPECT_NE(outcome.thrown.find("rank 2 left before"), std::string::npos) << outcome.thrown;
  EXPECT_EQ(outcome.lines.size(), 3U);
  EXPECT_LT(outcome.seconds, 30);
}

TEST_P(ThreadFaults, ARankThatStalls_IsNamedWhenTimeIsUp) {
  std::atomic<int> num_failed = 0;
  const auto outcome = run(
      kShort,
      [&](Communicator& group) {
        while (group.rank() == kFaulty && num_failed < kNumRanks - 1) {
          std::this_thread::yield();
        }
        collective().call(group);
        group.barrier();  // the stalled rank hears of it as well
      },
      [&](int) { ++num_failed; });
  expect_lines(outcome, {collective().name, "did not come within 0.3 s"});
  // On a busy machine others may be late as well.
  const std::regex names_it("ranks? ([0-3], )*2(, [0-3])* did not come");
  for (const auto& [rank, line] : outcome.lines) {
    EXPECT_TRUE(std::regex_search(line, names_it)) << line;
  }
  EXPECT_EQ(outcome.lines.size(), 4U);
  EXPECT_GE(outcome.seconds, 0.3);
  EXPECT_LT(outcome.seconds, 30);
}

TEST(ThreadFaultsOnce, SeveralRanksMissing_AreAllNamed) {
  std::atomic<bool> is_over = false;
  const auto outcome = run(
      kAmple,
      [&](Communicator& group) {
        while (group.rank() % 2 == 1 && !is_over) {
          std::this_thread::yield();
        }
        group.barrier();
      },
      [&](int) { is_over = true; });
  EXPECT_NE(outcome.thrown.find("barrier: ranks 1, 3 did not come within 1.5 s"), std::string::npos) << outcome.thrown;
}

TEST(ThreadFaultsOnce, AGroupOfTheWorld_IsNamedAndItsRanksInBothCounts) {
  std::atomic<int> num_failed = 0;
  const auto outcome = run(
      kAmple,
      [&](Communicator& world) {
        const auto group = world.split(world.rank() / 2, 0, world.rank() / 2 == 0 ? "low" : "high");
        while (world.rank() == 3 && num_failed == 0) {
          std::this_thread::yield();
        }
        if (world.rank() != 3) {
          group->barrier();
        }
      },
      [&](int) { ++num_failed; });
  EXPECT_EQ(outcome.thrown, "rank 0 of group high: barrier: rank 1 (of world 3) did not come within 1.5 s");
  EXPECT_EQ(outcome.lines.size(), 1U);
}

TEST(ThreadFaultsOnce, Abort_EndsEveryCallOfEveryRank) {
  const auto outcome = run(kLong, [](Communicator& world) {
    const auto group = world.split(0, 0, "tp");
    if (world.rank() == kFaulty) {
      group->abort("operator said stop");
      EXPECT_THROW(group->barrier(), CommError);
      EXPECT_THROW(world.barrier(), CommError);
      return;
    }
    try {
      group->barrier();
    } catch (const CommError& error) {
      EXPECT_EQ(std::string(error.what()),
                fmt::format("rank {} of group tp: barrier: rank 2 of world failed: operator said stop", group->rank()));
    }
    world.barrier();
  });
  expect_lines(outcome, {"barrier: rank 2 of world failed: operator said stop"});
  EXPECT_FALSE(outcome.lines.contains(kFaulty));
  EXPECT_NE(outcome.thrown.find("operator said stop"), std::string::npos) << outcome.thrown;
}

TEST(ThreadFaultsOnce, DifferentCalls_AreToldApart) {
  const auto outcome = run(kLong, [](Communicator& group) {
    float x = 1;
    group.all_reduce(&x, &x, 1, group.rank() == kFaulty ? Element::kI32 : Element::kF32);
  });
  EXPECT_EQ(outcome.lines.size(), 4U);
  EXPECT_NE(outcome.thrown.find("all_reduce of 1"), std::string::npos) << outcome.thrown;
  EXPECT_NE(outcome.thrown.find("came for all_reduce of 1"), std::string::npos) << outcome.thrown;
}

TEST(ThreadFaultsOnce, AllToAll_ACountThatDoesNotFit_EndsTheJob) {
  const std::string line = "rank 1 of group world: all_to_all of f32: rank 2 sends 8 bytes where 4 are expected";
  const auto outcome = run(kLong, [&](Communicator& group) {
    const std::vector<int64_t> one_each(kNumRanks, 1);
    std::vector<int64_t> send_counts = one_each;
    send_counts[1] = group.rank() == kFaulty ? 2 : 1;
    const float mine[8] = {};
    float theirs[8] = {};
    try {
      group.all_to_all(mine, send_counts, theirs, one_each, Element::kF32);
    } catch (const CommError& error) {  // a rank that goes on all the same gets no further
      EXPECT_EQ(group.rank(), 1);
      EXPECT_EQ(error.what(), line);
    }
    group.barrier();
  });
  ASSERT_EQ(outcome.lines.size(), 4U);
  for (const auto& [rank, what] : outcome.lines) {
    EXPECT_EQ(what, fmt::format("rank {} of group world: barrier: rank 1 of world failed: {}", rank, line));
  }
}

TEST(ThreadFaultsOnce, WorkOfAQueue_ThrowsWhereTheQueueIsWaitedFor) {
  const auto outcome = run(kLong, [](Communicator& group) {
    QueueThread queue;
    group.set_queue(queue.queue());
    if (group.rank() == kFaulty) {
      throw std::runtime_error("disk full");
    }
    group.barrier();
    queue.finish();
  });
  expect_lines(outcome, {"barrier: rank 2 of world failed: disk full"});
}

TEST(ThreadFaultsOnce, AnErrorThatIsNoException_HasALine) {
  EXPECT_THROW(run_thread_ranks(
                   1,
                   kLong,
                   [](Communicator&) { throw 3; },
                   [](int rank, const std::string& what) {
                     EXPECT_EQ(rank, 0);
                     EXPECT_EQ(what, "an error without a text");
                   }),
               int);
}

TEST(ThreadFaultsOnce, TheErrorThatCameFirst_IsTheOneThrown) {
  std::atomic<bool> has_failed = false;
  const auto outcome = run(
      kLong,
      [&](Communicator& group) {
        if (group.rank() == 3) {
          throw std::runtime_error("first");
        }
        while (!has_failed) {
          std::this_thread::yield();
        }
        throw std::runtime_error("later");
      },
      [&](int) { has_failed = true; });
  EXPECT_EQ(outcome.thrown, "first");
  EXPECT_EQ(outcome.lines.size(), 4U);
}

// A rank throws after a random number of random calls, with random delays: the job ends each time, and nobody reads what is gone.
TEST(ThreadFaultsOnce, Soak_AnyRankAtAnyCall) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const int faulty = static_cast<int>(seed) % kNumRanks;
    const auto outcome = run(kLong, [&](Communicator& world) {
      const auto group = world.split(world.rank() / 2, 0, "half");
      std::minstd_rand shared_random(seed);
      std::minstd_rand own_random(seed * kNumRanks + static_cast<unsigned>(world.rank()));
      const unsigned fault_at = shared_random() % 20;
      for (unsigned round = 0;; ++round) {
        if (own_random() % 3 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(own_random() % 200));
        }
        if (world.rank() == faulty && round == fault_at) {
          throw std::runtime_error("planted");
        }
        const std::vector<int32_t> mine(50, world.rank());
        std::vector<int32_t> all(200);
        Communicator& where = shared_random() % 2 == 0 ? world : *group;
        where.all_gather(mine.data(), all.data(), 50, Element::kI32);
      }
    });
    EXPECT_EQ(outcome.thrown, "planted") << seed;
    EXPECT_EQ(outcome.lines.size(), 4U) << seed;
  }
}

}  // namespace

}  // namespace gpu::comm
