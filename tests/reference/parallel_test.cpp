#include "reference/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace reference {
namespace {

TEST(ParallelFor, VisitsEveryIndexOnce) {
  for (const int num_threads : {1, 2, 5, 64}) {
    for (const int64_t count : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      parallel_for(count, num_threads, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; });
      for (const auto& visited : visits) {
        ASSERT_EQ(visited.load(), 1) << count << " with " << num_threads;
      }
    }
  }
}

// Hundreds of short loops: no thread may still be in one when the next begins.
TEST(ParallelFor, LoopsFollowOneAnother) {
  std::vector<int64_t> values(100, 0);
  for (int round = 0; round < 500; ++round) {
    parallel_for(100, 3, [&](int64_t i) { values[static_cast<size_t>(i)] += i; });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), int64_t{500} * 4950);
}

TEST(ParallelFor, FirstExceptionIsRethrown_AndTheNextLoopWorks) {
  EXPECT_THROW(parallel_for(100,
                            4,
                            [](int64_t i) {
                              if (i == 37) {
                                throw std::runtime_error("37");
                              }
                            }),
               std::runtime_error);
  std::atomic<int> count = 0;
  parallel_for(100, 4, [&](int64_t) { ++count; });
  EXPECT_EQ(count.load(), 100);
}

TEST(ParallelFor, LoopInsideALoop_Works) {
  std::atomic<int> count = 0;
  parallel_for(8, 4, [&](int64_t) { parallel_for(8, 4, [&](int64_t) { ++count; }); });
  EXPECT_EQ(count.load(), 64);
}

TEST(ParallelFor, TwoThreadsMayLoopAtOnce) {
  std::atomic<int> count = 0;
  const auto work = [&] {
    for (int round = 0; round < 200; ++round) {
      parallel_for(10, 3, [&](int64_t) { ++count; });
    }
  };
  {
    const std::jthread other(work);
    work();
  }
  EXPECT_EQ(count.load(), 4000);
}

}  // namespace
}  // namespace reference
