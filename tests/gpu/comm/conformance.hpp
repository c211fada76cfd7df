// What every back end has to do, as test cases. A test program defines run_ranks() and the sizes, and includes this once.
// One file of many cases, because it is included whole by every back end.
// Expected values are worked out by hand or follow from a formula of rank and place; none comes from another collective.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "gpu/comm/communicator.hpp"
#include "gpu/portable/require.hpp"
#include "tests/gpu/comm/queue_thread.hpp"

namespace gpu::comm {

// Runs `body` on each of `num_ranks` ranks of the back end under test.
void run_ranks(int num_ranks, const std::function<void(Communicator&)>& body);
std::vector<int> sizes_under_test();

constexpr Element kAllElements[] = {Element::kByte, Element::kI32, Element::kF32, Element::kBf16, Element::kF16};
constexpr Element kSummable[] = {Element::kI32, Element::kF32, Element::kBf16, Element::kF16};
constexpr int64_t kCounts[] = {0, 1, 5, 1023};

// `value`, an integer up to 255, in an element's format. BF16 and FP16 hold it exactly, with 7 and 10 bits behind the first one.
inline std::vector<std::byte> encode(int value, Element element) {
  const auto bytes_of = [](auto stored) {
    std::vector<std::byte> bytes(sizeof stored);
    std::memcpy(bytes.data(), &stored, sizeof stored);
    return bytes;
  };
  if (element == Element::kByte) {
    return bytes_of(static_cast<uint8_t>(value));
  }
  if (element == Element::kI32) {
    return bytes_of(int32_t{value});
  }
  if (element == Element::kF32) {
    return bytes_of(static_cast<float>(value));
  }
  const int num_fraction_bits = element == Element::kBf16 ? 7 : 10;
  const int bias = element == Element::kBf16 ? 127 : 15;
  int exponent = 0;
  while (value >> (exponent + 1) != 0) {
    ++exponent;
  }
  const int bits = ((exponent + bias) << num_fraction_bits) +
                   ((value << num_fraction_bits >> exponent) & ((1 << num_fraction_bits) - 1));
  return bytes_of(static_cast<uint16_t>(value == 0 ? 0 : bits));
}

template <typename ValueAt>
std::vector<std::byte> encode_all(int64_t count, Element element, const ValueAt& value_at) {
  std::vector<std::byte> all;
  for (int64_t i = 0; i < count; ++i) {
    const auto one = encode(value_at(i), element);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

// What rank `rank` holds at place i; sums over eight ranks stay below 256.
inline int value_of(int rank, int64_t i) {
  return (rank + 1) * static_cast<int>(i % 7);
}
inline int sum_of_ranks(int num_ranks, int64_t i) {
  return num_ranks * (num_ranks + 1) / 2 * static_cast<int>(i % 7);
}

// Room for results, holding what no expected value holds.
inline std::vector<std::byte> poisoned(int64_t num_bytes) {
  return std::vector<std::byte>(static_cast<size_t>(num_bytes), std::byte{0xA5});
}

class Conformance : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::ValuesIn(sizes_under_test()), [](const auto& param) {
  return fmt::format("{}", param.param);
});

TEST_P(Conformance, AllReduce_AddsEveryElement) {
  run_ranks(GetParam(), [](Communicator& group) {
    for (const Element element : kSummable) {
      for (const int64_t count : kCounts) {
        const auto mine = encode_all(count, element, [&](int64_t i) { return value_of(group.rank(), i); });
        const auto expected = encode_all(count, element, [&](int64_t i) { return sum_of_ranks(group.size(), i); });
        auto result = poisoned(count * element_bytes(element));
        group.all_reduce(mine.data(), result.data(), count, element);
        EXPECT_EQ(result, expected) << "element " << static_cast<int>(element) << ", count " << count;
        auto in_place = mine;
        group.all_reduce(in_place.data(), in_place.data(), count, element);
        EXPECT_EQ(in_place, expected) << "in place, element " << static_cast<int>(element) << ", count " << count;
      }
    }
  });
}

TEST_P(Conformance, AllReduce_IntegersWrapAround) {
  run_ranks(GetParam(), [](Communicator& group) {
    int32_t value = group.rank() == 0 ? 2147483647 : 1;
    group.all_reduce(&value, &value, 1, Element::kI32);
    const auto expected = static_cast<int32_t>(2147483647U + static_cast<uint32_t>(group.size() - 1));
    EXPECT_EQ(value, expected);
  });
}

// 1e8 + 1 is 1e8 in FP32: the 1 survives only where it is added last, so the order of ranks decides.
TEST_P(Conformance, Sums_AreInTheOrderOfRanks) {
  run_ranks(GetParam(), [](Communicator& group) {
    if (group.size() < 3) {
      return;
    }
    const float orders[6][3] = {
        {1e8f, -1e8f, 1}, {-1e8f, 1e8f, 1}, {1e8f, 1, -1e8f}, {-1e8f, 1, 1e8f}, {1, 1e8f, -1e8f}, {1, -1e8f, 1e8f}};
    const float expected[6] = {1, 1, 0, 0, 0, 0};
    // Three neighbours hold the values, the other ranks 0: at every place among the ranks.
    for (int first = 0; first + 3 <= group.size(); ++first) {
      std::vector<float> mine(6);
      for (size_t order = 0; order < 6; ++order) {
        const int place = group.rank() - first;
        mine[order] = place >= 0 && place < 3 ? orders[order][place] : 0;
      }
      std::vector<float> sums(6);
      group.all_reduce(mine.data(), sums.data(), 6, Element::kF32);
      EXPECT_EQ(sums, std::vector<float>(expected, expected + 6)) << "first " << first;
      std::vector<float> parts;
      for (int to = 0; to < group.size(); ++to) {
        parts.insert(parts.end(), mine.begin(), mine.end());
      }
      group.reduce_scatter(parts.data(), sums.data(), 6, Element::kF32);
      EXPECT_EQ(sums, std::vector<float>(expected, expected + 6)) << "scattered, first " << first;
    }
  });
}

// Rank 0 holds 256 (BF16) or 2048 (FP16), where steps are 2, the others 1. Rounding each partial sum to even would stay at rank 0's value.
TEST_P(Conformance, Sums_AreRoundedOnce) {
  run_ranks(GetParam(), [](Communicator& group) {
    // Bits of 256, 258, 260, 264 by number of ranks: 257 and 259 lie halfway and go to the even neighbour, 263 too.
    const std::map<int, uint16_t> bf16_sums = {{1, 0x4380}, {2, 0x4380}, {3, 0x4381}, {4, 0x4382}, {8, 0x4384}};
    uint16_t bf16_value = group.rank() == 0 ? 0x4380 : 0x3F80;
    group.all_reduce(&bf16_value, &bf16_value, 1, Element::kBf16);
    EXPECT_EQ(bf16_value, bf16_sums.at(group.size()));
    // Likewise 2048, 2050, 2052, 2056.
    const std::map<int, uint16_t> fp16_sums = {{1, 0x6800}, {2, 0x6800}, {3, 0x6801}, {4, 0x6802}, {8, 0x6804}};
    uint16_t fp16_value = group.rank() == 0 ? 0x6800 : 0x3C00;
    group.all_reduce(&fp16_value, &fp16_value, 1, Element::kF16);
    EXPECT_EQ(fp16_value, fp16_sums.at(group.size()));
  });
}

TEST_P(Conformance, AllGather_PutsRanksInOrder) {
  run_ranks(GetParam(), [](Communicator& group) {
    for (const Element element : kAllElements) {
      for (const int64_t count : kCounts) {
        const int64_t num_bytes = count * element_bytes(element);
        const auto mine = encode_all(count, element, [&](int64_t i) { return value_of(group.rank(), i); });
        const auto expected = encode_all(
            count * group.size(), element, [&](int64_t i) { return value_of(static_cast<int>(i / count), i % count); });
        auto result = poisoned(num_bytes * group.size());
        group.all_gather(mine.data(), result.data(), count, element);
        EXPECT_EQ(result, expected) << "element " << static_cast<int>(element) << ", count " << count;
        auto in_place = poisoned(num_bytes * group.size());
        std::copy(mine.begin(), mine.end(), in_place.begin() + group.rank() * num_bytes);
        group.all_gather(in_place.data() + group.rank() * num_bytes, in_place.data(), count, element);
        EXPECT_EQ(in_place, expected) << "in place, element " << static_cast<int>(element) << ", count " << count;
      }
    }
  });
}

TEST_P(Conformance, ReduceScatter_LeavesTheOwnPartOfTheSum) {
  run_ranks(GetParam(), [](Communicator& group) {
    for (const Element element : kSummable) {
      for (const int64_t count : kCounts) {
        const auto mine =
            encode_all(count * group.size(), element, [&](int64_t i) { return value_of(group.rank(), i); });
        const auto expected =
            encode_all(count, element, [&](int64_t i) { return sum_of_ranks(group.size(), group.rank() * count + i); });
        auto result = poisoned(count * element_bytes(element));
        group.reduce_scatter(mine.data(), result.data(), count, element);
        EXPECT_EQ(result, expected) << "element " << static_cast<int>(element) << ", count " << count;
      }
    }
  });
}

// Rank r sends (2 r + to) % 4 elements to rank `to`: some parts are empty, those of a rank to itself among them.
TEST_P(Conformance, AllToAll_DeliversRaggedParts) {
  run_ranks(GetParam(), [](Communicator& group) {
    const auto num_elements = [](int from, int to) { return int64_t{(2 * from + to) % 4}; };
    const auto value = [](int from, int to, int64_t i) { return 20 * from + 3 * to + static_cast<int>(i); };
    for (const Element element : kAllElements) {
      std::vector<int64_t> send_counts;
      std::vector<int64_t> receive_counts;
      std::vector<std::byte> sent;
      std::vector<std::byte> expected;
      for (int other = 0; other < group.size(); ++other) {
        send_counts.push_back(num_elements(group.rank(), other));
        receive_counts.push_back(num_elements(other, group.rank()));
        const auto to_other =
            encode_all(send_counts.back(), element, [&](int64_t i) { return value(group.rank(), other, i); });
        const auto from_other =
            encode_all(receive_counts.back(), element, [&](int64_t i) { return value(other, group.rank(), i); });
        sent.insert(sent.end(), to_other.begin(), to_other.end());
        expected.insert(expected.end(), from_other.begin(), from_other.end());
      }
      auto result = poisoned(static_cast<int64_t>(expected.size()));
      group.all_to_all(sent.data(), send_counts, result.data(), receive_counts, element);
      EXPECT_EQ(result, expected) << "element " << static_cast<int>(element);
    }
  });
}

TEST_P(Conformance, AllToAll_OneRankGetsEverything) {
  run_ranks(GetParam(), [](Communicator& group) {
    const int last = group.size() - 1;
    std::vector<int64_t> send_counts(static_cast<size_t>(group.size()));
    send_counts.back() = 2;
    const std::vector<int64_t> receive_counts(static_cast<size_t>(group.size()), group.rank() == last ? 2 : 0);
    const std::vector<int32_t> mine = {group.rank(), -group.rank()};
    std::vector<int32_t> all(group.rank() == last ? static_cast<size_t>(group.size()) * 2 : 0);
    group.all_to_all(mine.data(), send_counts, all.data(), receive_counts, Element::kI32);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i], i % 2 == 0 ? static_cast<int>(i / 2) : -static_cast<int>(i / 2));
    }
  });
}

TEST_P(Conformance, Broadcast_ReachesAllFromEveryRoot) {
  run_ranks(GetParam(), [](Communicator& group) {
    for (const Element element : kAllElements) {
      for (const int64_t count : kCounts) {
        for (int root = 0; root < group.size(); ++root) {
          const auto expected = encode_all(count, element, [&](int64_t i) { return value_of(root, i); });
          auto values = group.rank() == root ? expected : poisoned(count * element_bytes(element));
          group.broadcast(values.data(), count, element, root);
          EXPECT_EQ(values, expected) << "root " << root << ", count " << count;
        }
      }
    }
  });
}

TEST_P(Conformance, SendReceive_GoesThroughAChain) {
  run_ranks(GetParam(), [](Communicator& group) {
    for (const Element element : kAllElements) {
      for (const int64_t count : kCounts) {
        const auto expected = encode_all(count, element, [](int64_t i) { return value_of(3, i); });
        auto values = group.rank() == 0 ? expected : poisoned(count * element_bytes(element));
        if (group.rank() > 0) {
          group.receive(values.data(), count, element, group.rank() - 1);
        }
        if (group.rank() + 1 < group.size()) {
          group.send(values.data(), count, element, group.rank() + 1);
        }
        EXPECT_EQ(values, expected);
      }
    }
  });
}

TEST_P(Conformance, SendReceive_KeepsTheOrderOfAPairBothWays) {
  run_ranks(GetParam(), [](Communicator& group) {
    if (group.rank() > 1 || group.size() < 2) {
      return;
    }
    for (int32_t round = 0; round < 20; ++round) {
      int32_t value = round;
      if (group.rank() == 0) {
        group.send(&value, 1, Element::kI32, 1);
        group.receive(&value, 1, Element::kI32, 1);
        EXPECT_EQ(value, 100 + round);
      } else {
        group.receive(&value, 1, Element::kI32, 0);
        EXPECT_EQ(value, round);
        value += 100;
        group.send(&value, 1, Element::kI32, 0);
      }
    }
  });
}

// Two ranks that send to each other at once, each in one queue while it receives in the other; the receives are first to begin.
TEST_P(Conformance, SendReceive_PassEachOtherInTwoQueues) {
  run_ranks(GetParam(), [](Communicator& group) {
    if (group.rank() > 1 || group.size() < 2) {
      return;
    }
    const int other = 1 - group.rank();
    const int32_t mine = 100 + group.rank();
    int32_t theirs = -1;
    QueueThread sends;
    QueueThread receives;
    sends.queue()([] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
    group.set_queue(sends.queue());
    group.send(&mine, 1, Element::kI32, other);
    group.set_queue(receives.queue());
    group.receive(&theirs, 1, Element::kI32, other);
    sends.finish();
    receives.finish();
    EXPECT_EQ(theirs, 100 + other);
  });
}

// One buffer over and over, nothing between the calls: whoever reads late would read the next call's values.
TEST_P(Conformance, BackToBackCalls_ReuseTheirBuffers) {
  run_ranks(GetParam(), [](Communicator& group) {
    std::minstd_rand random(static_cast<unsigned>(group.rank() + 1));
    std::vector<int32_t> mine(257);
    std::vector<int32_t> all(mine.size() * static_cast<size_t>(group.size()));
    for (int32_t round = 0; round < 25; ++round) {
      if (random() % 8 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      }
      std::fill(mine.begin(), mine.end(), 1000 * round + group.rank());
      group.all_gather(mine.data(), all.data(), 257, Element::kI32);
      std::fill(mine.begin(), mine.end(), -1);
      for (int from = 0; from < group.size(); ++from) {
        ASSERT_EQ(all[static_cast<size_t>(from) * 257 + 256], 1000 * round + from);
      }
      std::fill(mine.begin(), mine.end(), round);
      group.all_reduce(mine.data(), mine.data(), 257, Element::kI32);
      ASSERT_EQ(mine[0], round * group.size());
    }
  });
}

// After the barrier, what every rank wrote before it is there.
TEST_P(Conformance, Barrier_OrdersWritesBeforeReads) {
  run_ranks(GetParam(), [](Communicator& group) {
    int32_t mine = -1;
    const auto peers = group.peers(&mine);
    for (int32_t round = 0; round < 20 && !peers.empty(); ++round) {
      mine = 10 * round + group.rank();
      group.barrier();
      for (int other = 0; other < group.size(); ++other) {
        EXPECT_EQ(*static_cast<const int32_t*>(peers[static_cast<size_t>(other)]), 10 * round + other);
      }
      group.barrier();
    }
    group.barrier();  // peers' memory lasts until all are done
  });
}

TEST_P(Conformance, Split_MakesGroupsByColourInTheOrderOfKeys) {
  run_ranks(GetParam(), [](Communicator& world) {
    // Even and odd ranks, last rank first.
    const auto group = world.split(world.rank() % 2, -world.rank(), "parity");
    std::vector<int32_t> members;
    for (int rank = world.size() - 1; rank >= 0; --rank) {
      if (rank % 2 == world.rank() % 2) {
        members.push_back(rank);
      }
    }
    ASSERT_EQ(group->size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[static_cast<size_t>(group->rank())], world.rank());
    std::vector<int32_t> gathered(members.size());
    const int32_t mine = world.rank();
    group->all_gather(&mine, gathered.data(), 1, Element::kI32);
    EXPECT_EQ(gathered, members);
    // Equal keys: the order of ranks.
    const auto same = world.split(7, 0, "all");
    EXPECT_EQ(same->rank(), world.rank());
    EXPECT_EQ(same->size(), world.size());
  });
}

// Ranks of a cube; groups along each axis, used in turns, and a group of a group.
TEST_P(Conformance, Split_IntoTwoByTwoByTwo) {
  run_ranks(GetParam(), [](Communicator& world) {
    if (world.size() != 8) {
      return;
    }
    const int x = world.rank() & 1;
    const int y = world.rank() >> 1 & 1;
    const int z = world.rank() >> 2;
    const auto along_x = world.split(2 * z + y, x, "x");
    const auto along_y = world.split(2 * z + x, y, "y");
    const auto along_z = world.split(2 * y + x, z, "z");
    const auto plane = world.split(z, 2 * y + x, "plane");
    const auto line_of_plane = plane->split(y, x, "line");
    for (int32_t round = 0; round < 10; ++round) {
      int32_t value = 1 << world.rank();
      along_x->all_reduce(&value, &value, 1, Element::kI32);
      EXPECT_EQ(value, 3 << (4 * z + 2 * y));
      along_y->all_reduce(&value, &value, 1, Element::kI32);
      EXPECT_EQ(value, 15 << (4 * z));
      along_z->all_reduce(&value, &value, 1, Element::kI32);
      EXPECT_EQ(value, 255);
      value = 1 << world.rank();
      line_of_plane->all_reduce(&value, &value, 1, Element::kI32);
      EXPECT_EQ(value, 3 << (4 * z + 2 * y));
    }
  });
}

TEST_P(Conformance, Queue_DoesTheWorkLater) {
  run_ranks(GetParam(), [](Communicator& group) {
    std::vector<std::function<void()>> waiting;
    group.set_queue([&](std::function<void()> work) { waiting.push_back(std::move(work)); });
    int32_t value = 0;
    int32_t sum = -1;
    group.all_reduce(&value, &sum, 1, Element::kI32);
    value = group.rank() + 1;  // after the call, before its work
    EXPECT_EQ(sum, -1);
    ASSERT_EQ(waiting.size(), 1U);
    waiting[0]();
    EXPECT_EQ(sum, group.size() * (group.size() + 1) / 2);
    const auto part = group.split(0, 0, "part");  // at once, and with the same queue
    part->barrier();
    ASSERT_EQ(waiting.size(), 2U);
    waiting[1]();
  });
}

// A queue that runs on a thread of its own, for each of two groups of the same ranks. The ranks hand in work in the same order; which
// queue gets on first is anybody's guess.
TEST_P(Conformance, TwoQueues_DoNotHoldEachOtherUp) {
  run_ranks(GetParam(), [](Communicator& group) {
    const auto other = group.split(0, 0, "other");
    QueueThread first_queue;
    QueueThread second_queue;
    group.set_queue(first_queue.queue());
    other->set_queue(second_queue.queue());
    constexpr int kNumRounds = 15;
    std::vector<int32_t> sums(kNumRounds, group.rank());
    std::vector<int32_t> gathered(static_cast<size_t>(group.size()));
    const int32_t mine = 3 * group.rank();
    for (int round = 0; round < kNumRounds; ++round) {
      int32_t& sum = sums[static_cast<size_t>(round)];
      if (group.rank() % 2 == 0) {
        first_queue.queue()([] { std::this_thread::sleep_for(std::chrono::microseconds(100)); });
      }
      group.all_reduce(&sum, &sum, 1, Element::kI32);
      other->all_gather(&mine, gathered.data(), 1, Element::kI32);
    }
    first_queue.finish();
    second_queue.finish();
    EXPECT_EQ(sums, std::vector<int32_t>(kNumRounds, group.size() * (group.size() - 1) / 2));
    for (int rank = 0; rank < group.size(); ++rank) {
      EXPECT_EQ(gathered[static_cast<size_t>(rank)], 3 * rank);
    }
  });
}

// Each call twice, in two queues, of which every second rank's first one and the other ranks' second one are slow to begin: ranks come to
// the two calls in different orders, and still each meets its own. Copy c of a value is 1000 c larger.
TEST_P(Conformance, OneGroup_MeetsAcrossItsQueues) {
  run_ranks(GetParam(), [](Communicator& group) {
    const int n = group.size();
    const int rank = group.rank();
    const auto each = static_cast<size_t>(n);
    const std::vector<int64_t> one_each(each, 1);
    struct Values {
      std::vector<int32_t> mine;  // for rank r: 10 times this rank plus r
      std::vector<int32_t> all;
      int32_t one = 0;
    };
    const auto twice = [&](const std::function<void(Values&)>& call) {
      std::vector<Values> copies(2, {std::vector<int32_t>(each), std::vector<int32_t>(each), 0});
      QueueThread queues[2];
      queues[rank % 2].queue()([] { std::this_thread::sleep_for(std::chrono::milliseconds(4)); });
      for (int copy = 0; copy < 2; ++copy) {
        auto& values = copies[static_cast<size_t>(copy)];
        std::iota(values.mine.begin(), values.mine.end(), 1000 * copy + 10 * rank);
        values.one = 1000 * copy + rank;
        group.set_queue(queues[copy].queue());
        call(values);
      }
      queues[0].finish();
      queues[1].finish();
      return copies;
    };
    const auto reduced = twice([&](Values& v) { group.all_reduce(&v.one, &v.one, 1, Element::kI32); });
    const auto scattered = twice([&](Values& v) { group.reduce_scatter(v.mine.data(), &v.one, 1, Element::kI32); });
    const auto gathered = twice([&](Values& v) { group.all_gather(v.mine.data(), v.all.data(), 1, Element::kI32); });
    const auto exchanged =
        twice([&](Values& v) { group.all_to_all(v.mine.data(), one_each, v.all.data(), one_each, Element::kI32); });
    const auto sent = twice([&](Values& v) { group.broadcast(&v.one, 1, Element::kI32, n - 1); });
    const auto passed = twice([&](Values& v) {
      if (n > 1 && rank == 0) {
        group.send(&v.one, 1, Element::kI32, 1);
      } else if (rank == 1) {
        group.receive(&v.one, 1, Element::kI32, 0);
      }
    });
    for (int copy = 0; copy < 2; ++copy) {
      const auto c = static_cast<size_t>(copy);
      EXPECT_EQ(reduced[c].one, 1000 * copy * n + n * (n - 1) / 2);
      EXPECT_EQ(scattered[c].one, 1000 * copy * n + 10 * n * (n - 1) / 2 + n * rank);
      EXPECT_EQ(sent[c].one, 1000 * copy + n - 1);
      EXPECT_EQ(passed[c].one, 1000 * copy + (rank < 2 ? 0 : rank));
      for (int other = 0; other < n; ++other) {
        EXPECT_EQ(gathered[c].all[static_cast<size_t>(other)], 1000 * copy + 10 * other);
        EXPECT_EQ(exchanged[c].all[static_cast<size_t>(other)], 1000 * copy + 10 * other + rank);
      }
    }
  });
}

TEST_P(Conformance, SentBytes_CountWhatGoesToOthers) {
  run_ranks(GetParam(), [](Communicator& group) {
    const int n = group.size();
    const bool is_first = group.rank() == 0;
    const auto sent = [&](const std::string& collective) {
      const auto found = group.sent_bytes().find(collective);
      return found == group.sent_bytes().end() ? 0 : found->second;
    };
    std::vector<std::byte> a(static_cast<size_t>(64 * n));
    std::vector<std::byte> b(static_cast<size_t>(64 * n));
    group.all_reduce(a.data(), b.data(), 5, Element::kBf16);
    group.all_reduce(a.data(), b.data(), 2, Element::kF32);
    EXPECT_EQ(sent("all_reduce"), 18 * (n - 1));
    group.all_gather(a.data(), b.data(), 3, Element::kI32);
    EXPECT_EQ(sent("all_gather"), 12 * (n - 1));
    group.reduce_scatter(a.data(), b.data(), 4, Element::kF16);
    EXPECT_EQ(sent("reduce_scatter"), 8 * (n - 1));
    std::vector<int64_t> counts(static_cast<size_t>(n), 7);
    group.all_to_all(a.data(), counts, b.data(), counts, Element::kByte);
    EXPECT_EQ(sent("all_to_all"), 7 * (n - 1));
    group.broadcast(a.data(), 9, Element::kByte, 0);
    EXPECT_EQ(sent("broadcast"), is_first ? 9 * (n - 1) : 0);
    group.barrier();
    if (n > 1 && is_first) {
      group.send(a.data(), 6, Element::kI32, 1);
    }
    if (group.rank() == 1) {
      group.receive(a.data(), 6, Element::kI32, 0);
    }
    EXPECT_EQ(sent("send"), n > 1 && is_first ? 24 : 0);
  });
}

TEST_P(Conformance, BadArguments_AreRefusedBeforeAnythingIsSent) {
  run_ranks(GetParam(), [](Communicator& group) {
    float a[16] = {};
    float b[16] = {};
    EXPECT_THROW(group.all_reduce(a, b, -1, Element::kF32), ArgumentError);
    EXPECT_THROW(group.all_reduce(nullptr, b, 1, Element::kF32), ArgumentError);
    EXPECT_THROW(group.all_reduce(a, a + 1, 2, Element::kF32), ArgumentError);
    EXPECT_THROW(group.all_reduce(a, b, 1, Element::kByte), ArgumentError);
    EXPECT_THROW(group.broadcast(a, 1, Element::kF32, group.size()), ArgumentError);
    EXPECT_THROW(group.send(a, 1, Element::kF32, group.rank()), ArgumentError);
    EXPECT_THROW(group.receive(a, 1, Element::kF32, -1), ArgumentError);
    const std::vector<int64_t> too_many(static_cast<size_t>(group.size()) + 1);
    EXPECT_THROW(group.all_to_all(a, too_many, b, too_many, Element::kF32), ArgumentError);
    group.barrier();  // the ranks still meet
  });
}

// Every collective in random order with random delays, against sums and places worked out here.
TEST_P(Conformance, Soak_WithRandomDelays) {
  run_ranks(GetParam(), [](Communicator& world) {
    std::minstd_rand shared_random(7);  // the same on every rank: which call comes
    std::minstd_rand own_random(static_cast<unsigned>(100 + world.rank()));
    const auto half = world.split(world.rank() % 2, 0, "half");
    for (int round = 0; round < 60; ++round) {
      Communicator& group = shared_random() % 2 == 0 ? world : *half;
      const auto count = static_cast<int64_t>(shared_random() % 40);
      const unsigned choice = shared_random() % 4;
      const int root = static_cast<int>(shared_random()) % 2 == 0 ? 0 : group.size() - 1;
      if (own_random() % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(own_random() % 200));
      }
      const auto size = static_cast<size_t>(group.size());
      std::vector<int32_t> mine(static_cast<size_t>(count), round + group.rank());
      std::vector<int32_t> all(static_cast<size_t>(count) * size, -1);
      const int32_t sum = round * group.size() + group.size() * (group.size() - 1) / 2;
      if (choice == 0) {
        group.all_reduce(mine.data(), mine.data(), count, Element::kI32);
        ASSERT_EQ(mine, std::vector<int32_t>(mine.size(), sum));
      } else if (choice == 1) {
        group.broadcast(mine.data(), count, Element::kI32, root);
        ASSERT_EQ(mine, std::vector<int32_t>(mine.size(), round + root));
      } else if (choice == 2) {
        group.all_gather(mine.data(), all.data(), count, Element::kI32);
        for (size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(all[i], round + static_cast<int>(i) / count);
        }
      } else {
        std::vector<int32_t> parts(all.size(), round + group.rank());
        group.reduce_scatter(parts.data(), mine.data(), count, Element::kI32);
        ASSERT_EQ(mine, std::vector<int32_t>(mine.size(), sum));
      }
    }
  });
}

}  // namespace gpu::comm
