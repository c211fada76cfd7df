#include "reference/reused.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace reference {
namespace {

TEST(Reused, BeginsAtALineOfTheCache) {
  for (const size_t num_bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{5000}, (size_t{1} << 20) + 1}) {
    void* memory = take_memory(num_bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u) << num_bytes;
    give_memory(memory, num_bytes);
  }
}

// Of every size around the borders of the classes, two blocks at once, each full of its own bytes; three times, so that later ones are reused.
TEST(Reused, BlocksHoldWhatWasAskedForAndDoNotOverlap) {
  std::vector<size_t> sizes;
  for (size_t num_bytes = 1; num_bytes < 3000; num_bytes += 7) {
    sizes.push_back(num_bytes);
  }
  for (size_t power = 12; power <= 21; ++power) {
    sizes.insert(sizes.end(), {(size_t{1} << power) - 1, size_t{1} << power, (size_t{1} << power) + 1});
  }
  for (int round = 0; round < 3; ++round) {
    for (const size_t num_bytes : sizes) {
      auto* first = static_cast<unsigned char*>(take_memory(num_bytes));
      auto* second = static_cast<unsigned char*>(take_memory(num_bytes));
      std::memset(first, 0xAA, num_bytes);
      std::memset(second, 0x55, num_bytes);
      EXPECT_EQ(first[0], 0xAA) << num_bytes;
      EXPECT_EQ(first[num_bytes - 1], 0xAA) << num_bytes;
      give_memory(first, num_bytes);
      give_memory(second, num_bytes);
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(Reused, WhatWasGivenBackIsTakenAgain) {
  void* memory = take_memory(1000);
  give_memory(memory, 1000);
  void* again = take_memory(990);  // 16 lines, as 1000 bytes are
  EXPECT_EQ(again, memory);
  give_memory(again, 990);
}
#endif

TEST(Reused, AnotherThreadMayGiveItBack) {
  Reused<float> values(1000, 3.0f);
  std::thread([taken = std::move(values)]() mutable {
    EXPECT_EQ(taken.back(), 3.0f);
    taken = Reused<float>(2000, 4.0f);
  }).join();
  EXPECT_EQ(Reused<float>(1000).back(), 0.0f);
}

}  // namespace
}  // namespace reference
