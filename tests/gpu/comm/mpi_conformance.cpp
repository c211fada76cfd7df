// Ranks as processes do what every back end has to do, and sum to the same bits as threads. A program for mpirun -np 4.
#include "tests/gpu/comm/conformance.hpp"

#include <cstdio>

#include "gpu/comm/mpi.hpp"

namespace gpu::comm {

namespace {

Communicator* world = nullptr;

}  // namespace

std::vector<int> sizes_under_test() {
  return {1, 2, 3, 4};
}

void run_ranks(int num_ranks, const std::function<void(Communicator&)>& body) {
  const bool takes_part = world->rank() < num_ranks;
  const auto group = world->split(takes_part ? 0 : 1, 0, "ranks");
  if (takes_part) {
    body(*group);
  }
}

namespace {

// What rank `rank` holds in these tests: bit patterns of every size and sign, without NaN and infinity.
template <typename Stored>
std::vector<Stored> random_values(int rank, int64_t count, Stored exponent_mask) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  std::vector<Stored> values(static_cast<size_t>(count));
  for (auto& value : values) {
    do {
      value = static_cast<Stored>(random());
    } while ((value & exponent_mask) == exponent_mask);
  }
  return values;
}

template <typename Stored>
void expect_the_bits_of_threads(Element element, Stored exponent_mask) {
  constexpr int64_t kCount = 20000;
  std::vector<Stored> by_threads;
  run_thread_ranks(world->size(), {}, [&](Communicator& group) {
    auto values = random_values<Stored>(group.rank(), kCount, exponent_mask);
    group.all_reduce(values.data(), values.data(), kCount, element);
    if (group.rank() == 0) {
      by_threads = values;
    }
  });
  auto values = random_values<Stored>(world->rank(), kCount, exponent_mask);
  world->all_reduce(values.data(), values.data(), kCount, element);
  EXPECT_EQ(values, by_threads);
}

TEST(MpiSums, HaveTheBitsOfThreads) {
  expect_the_bits_of_threads<uint32_t>(Element::kF32, 0x7F800000);
  expect_the_bits_of_threads<uint16_t>(Element::kBf16, 0x7F80);
  expect_the_bits_of_threads<uint16_t>(Element::kF16, 0x7C00);
}

// Letters that MPI does not carry at once, and many under way.
TEST(MpiLetters, OfMegabytes_Arrive) {
  constexpr int64_t kCount = 500'000;
  const std::vector<int32_t> mine(kCount, world->rank());
  std::vector<int32_t> all(static_cast<size_t>(kCount * world->size()));
  for (int round = 0; round < 3; ++round) {
    world->all_gather(mine.data(), all.data(), kCount, Element::kI32);
    for (int rank = 0; rank < world->size(); ++rank) {
      ASSERT_EQ(all[static_cast<size_t>(rank * kCount)], rank);
      ASSERT_EQ(all[static_cast<size_t>((rank + 1) * kCount - 1)], rank);
    }
  }
}

TEST(MpiPeers, AreOfNoUseToEachOther) {
  int mine = 0;
  EXPECT_TRUE(world->peers(&mine).empty());
}

}  // namespace

}  // namespace gpu::comm

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int status = 1;
  gpu::comm::run_mpi_rank(
      {.timeout_s = 30},
      [&](gpu::comm::Communicator& world) {
        if (world.size() != 4) {
          throw std::runtime_error("wants mpirun -np 4");
        }
        gpu::comm::world = &world;
        GTEST_FLAG_SET(brief, world.rank() != 0);  // of the others, what fails
        status = RUN_ALL_TESTS();
      },
      [](int rank, const std::string& what) { std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str()); });
  return status;
}
