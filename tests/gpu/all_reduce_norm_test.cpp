// The fused all-reduce of several ranks: the same bits as the sum in the order of ranks, rounded once, followed by rms_norm; over steps
// that use the windows again, with ranks that come early and late.
#include "gpu/kernels/all_reduce_norm.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "mutants/all_reduce_flag_kept.cuh"
#include "mutants/all_reduce_no_barrier.cuh"
#include "mutants/all_reduce_no_wait.cuh"
#include "mutants/all_reduce_one_buffer.cuh"
#include "mutants/all_reduce_own_data.cuh"
#include "tests/gpu/ranks.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

constexpr int kSteps = 3;
constexpr float kEpsilon = 1e-6f;

using Launcher = void (*)(Stream, const AllReduceNormArguments&);

struct Case {
  int num_ranks;
  int64_t num_tokens;
  int hidden;
  bool residual;
  ScaleFormat format = ScaleFormat::kFp32;
};

void PrintTo(const Case& c, std::ostream* out) {  // NOLINT(readability-identifier-naming): googletest's name
  *out << c.num_ranks << " ranks, " << c.num_tokens << " x " << c.hidden << (c.residual ? " with residual" : "");
}

struct Result {
  std::vector<half16> sum;
  std::vector<half16> normed;
  std::vector<fp8_e4m3> codes;
  std::vector<float> scales;
};

bool same_bytes(const auto& a, const auto& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}
bool same_bits(const Result& a, const Result& b) {
  return same_bytes(a.sum, b.sum) && same_bytes(a.normed, b.normed) && same_bytes(a.codes, b.codes) &&
         same_bytes(a.scales, b.scales);
}

std::vector<half16> partial_of(const Case& c, int step, int rank) {
  return random_bf16(c.num_tokens * c.hidden, 1, static_cast<uint32_t>(1000 + step * 10 + rank));
}
std::vector<half16> residual_of(const Case& c) {
  return random_bf16(c.num_tokens * c.hidden, 3, 1);
}
std::vector<half16> gain_of(const Case& c) {
  return random_bf16(c.hidden, 1, 2);
}

// What a norm reads and writes on one rank.
struct NormBuffers {
  NormBuffers(const Case& of, Device& device, Stream stream)
      : c(of),
        residual(device, stream, residual_of(of), "residual"),
        gain(device, stream, gain_of(of), "gain"),
        sum(device, stream, of.num_tokens * of.hidden, "residual_out"),
        normed(device, stream, of.num_tokens * of.hidden, "normed"),
        codes(device, stream, of.num_tokens * of.hidden, "codes"),
        scales(device, stream, (of.hidden + 127) / 128 * of.num_tokens, "scales") {}
  [[nodiscard]] RmsNormArguments arguments(const half16* x) const {
    return {.x = x,
            .residual = c.residual ? residual.data() : nullptr,
            .gain = gain.data(),
            .residual_out = c.residual ? sum.data() : nullptr,
            .normed = normed.data(),
            .codes = codes.data(),
            .scales = scales.data(),
            .num_tokens = c.num_tokens,
            .x_stride = c.hidden,
            .scale_stride = c.num_tokens,
            .hidden = c.hidden,
            .epsilon = kEpsilon,
            .scale_format = c.format};
  }
  [[nodiscard]] Result download() const {
    return {sum.download(), normed.download(), codes.download(), scales.download()};
  }
  const Case c;
  const Buffer<half16> residual;
  const Buffer<half16> gain;
  const Buffer<half16> sum;
  const Buffer<half16> normed;
  const Buffer<fp8_e4m3> codes;
  const Buffer<float> scales;
};

// On the host, in the order of ranks, rounded once; then rms_norm on one device. [step]
std::vector<Result> expected_results(const Case& c) {
  std::vector<Result> results;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> sum;
    for (int rank = 0; rank < c.num_ranks; ++rank) {
      const auto partial = partial_of(c, step, rank);
      sum.resize(partial.size());
      for (size_t i = 0; i < partial.size(); ++i) {
        const float value = model::decode_bf16(partial[i].bits);
        sum[i] = rank == 0 ? value : sum[i] + value;
      }
    }
    std::vector<half16> rounded;
    for (const float value : sum) {
      rounded.push_back({reference::encode_bf16(value)});
    }
    Device device;
    const Stream stream = device.create_stream();
    const NormBuffers buffers(c, device, stream);
    const Buffer<half16> x(device, stream, rounded, "x");
    rms_norm(stream, buffers.arguments(x.data()));
    results.push_back(buffers.download());
  }
  return results;
}

struct RankMemory {
  RankMemory(const Case& c, Device& device, Stream stream)
      : max_rows(c.num_tokens + 1),
        norm(c, device, stream),
        partial(device, stream, c.num_tokens * c.hidden, "partial"),
        rows(device, stream, 2 * max_rows * c.hidden, "rows"),
        flags(device, stream, std::vector<uint32_t>(static_cast<size_t>(max_rows * c.num_ranks), 0), "flags"),
        epochs(device, stream, std::vector<uint32_t>(static_cast<size_t>(max_rows), 0), "epochs"),
        windows(device, stream, c.num_ranks, "windows") {}
  int64_t max_rows;
  NormBuffers norm;
  Buffer<half16> partial;
  Buffer<half16> rows;
  Buffer<uint32_t> flags;
  Buffer<uint32_t> epochs;
  Buffer<AllReduceWindow> windows;
};

// [rank][step]
std::vector<std::vector<Result>> run(const Case& c,
                                     const emulation::Order& order,
                                     Launcher launcher,
                                     double peer_timeout_s = 60) {
  Ranks ranks(c.num_ranks, {.order = order, .peer_timeout_s = peer_timeout_s});
  std::vector<std::unique_ptr<RankMemory>> memory;
  std::vector<AllReduceWindow> windows;
  for (int rank = 0; rank < c.num_ranks; ++rank) {
    memory.push_back(std::make_unique<RankMemory>(c, ranks.device(rank), ranks.stream(rank)));
    windows.push_back({memory.back()->rows.data(), memory.back()->flags.data()});
  }
  for (const auto& mine : memory) {
    mine->windows.upload(windows);
  }
  std::vector<std::vector<Result>> results(memory.size());
  ranks.run([&](int rank) {
    RankMemory& mine = *memory[static_cast<size_t>(rank)];
    for (int step = 0; step < kSteps; ++step) {
      mine.partial.upload(partial_of(c, step, rank));
      // Some ranks come late, each time others.
      std::this_thread::sleep_for(std::chrono::milliseconds((rank + step) % 3));
      launcher(ranks.stream(rank),
               {.norm = mine.norm.arguments(mine.partial.data()),
                .windows = mine.windows.data(),
                .epochs = mine.epochs.data(),
                .max_rows = mine.max_rows,
                .num_ranks = c.num_ranks,
                .rank = rank});
      results[static_cast<size_t>(rank)].push_back(mine.norm.download());
    }
  });
  return results;
}

class AllReduceNorm : public testing::TestWithParam<Case> {};

TEST_P(AllReduceNorm, GivesEveryRankTheBitsOfSumThenNorm_InEveryOrder) {
  const auto expected = expected_results(GetParam());
  for (const auto& order : kOrders) {
    const auto got = run(GetParam(), order, all_reduce_norm);
    for (size_t rank = 0; rank < got.size(); ++rank) {
      for (size_t step = 0; step < kSteps; ++step) {
        EXPECT_TRUE(same_bits(got[rank][step], expected[step]))
            << order_name(order) << ", rank " << rank << ", step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         AllReduceNorm,
                         testing::Values(Case{1, 3, 256, true},
                                         Case{2, 1, 7168, true},
                                         Case{3, 5, 200, true, ScaleFormat::kUe8m0},
                                         Case{4, 4, 512, false},
                                         Case{8, 3, 256, true}));

// A group of one adds nothing to nothing: its own zeros keep their signs.
TEST(AllReduceNorm, OfOneRank_KeepsTheSignOfZero) {
  Ranks ranks(1);
  const Case c{1, 1, 8, false};
  RankMemory mine(c, ranks.device(0), ranks.stream(0));
  mine.partial.upload(std::vector<half16>(8, half16{0x8000}));
  mine.windows.upload({{mine.rows.data(), mine.flags.data()}});
  ranks.run([&](int) {
    all_reduce_norm(ranks.stream(0),
                    {.norm = mine.norm.arguments(mine.partial.data()),
                     .windows = mine.windows.data(),
                     .epochs = mine.epochs.data(),
                     .max_rows = mine.max_rows,
                     .num_ranks = 1});
  });
  const std::vector<half16> gain = gain_of(c);
  const std::vector<half16> normed = mine.norm.normed.download();
  for (size_t i = 0; i < normed.size(); ++i) {
    EXPECT_EQ(normed[i].bits, 0x8000 ^ (gain[i].bits & 0x8000));
  }
}

TEST(AllReduceNorm, OfNoTokens_LaunchesNothing) {
  EXPECT_NO_THROW(all_reduce_norm({}, {.norm = {.x_stride = 8, .hidden = 8}}));
}

TEST(AllReduceNorm, RefusesMoreTokensThanRows_AndRanksOutsideTheGroup) {
  AllReduceNormArguments arguments{.norm = {.num_tokens = 5, .x_stride = 8, .hidden = 8}, .max_rows = 4};
  EXPECT_THROW(all_reduce_norm({}, arguments), ArgumentError);
  arguments.max_rows = 5;
  arguments.num_ranks = 9;
  EXPECT_THROW(all_reduce_norm({}, arguments), ArgumentError);
  arguments.num_ranks = 2;
  arguments.rank = 2;
  EXPECT_THROW(all_reduce_norm({}, arguments), ArgumentError);
}

// --- Kernels with one line changed ---

// Found by the checker, or, in plain builds and in any case, by the results of some order.
bool is_caught(const Case& c, Launcher launcher) {
  const auto expected = expected_results(c);
  return std::any_of(kOrders.begin(), kOrders.end(), [&](const emulation::Order& order) {
    try {
      for (const auto& of_rank : run(c, order, launcher, 2)) {
        for (size_t step = 0; step < kSteps; ++step) {
          if (!same_bits(of_rank[step], expected[step])) {
            return true;
          }
        }
      }
      return false;
    } catch (const emulation::Fault&) {
      return true;
    }
  });
}

constexpr Case kMutated{3, 2, 256, true};

TEST(AllReduceMutant, OwnDataOnly_IsCaught) {
  EXPECT_TRUE(is_caught(kMutated, all_reduce_own_data::all_reduce_norm));
}
#if DSV3_CHECKED
// Whether these give wrong numbers is a matter of time; that nothing orders the accesses is not.
std::string race_of(Launcher launcher, const emulation::Order& order) {
  try {
    run(kMutated, order, launcher, 5);
    return "no fault";
  } catch (const emulation::Fault& fault) {
    return fault.kind == emulation::FaultKind::kRace ? "race" : fault.what();
  }
}
TEST(AllReduceMutant, MissingWait_IsARaceInEveryOrder) {
  for (const auto& order : kOrders) {
    EXPECT_EQ(race_of(all_reduce_no_wait::all_reduce_norm, order), "race") << order_name(order);
  }
}
TEST(AllReduceMutant, FlagThatDoesNotFollowTheRow_IsARaceInEveryOrder) {
  for (const auto& order : kOrders) {
    EXPECT_EQ(race_of(all_reduce_no_barrier::all_reduce_norm, order), "race") << order_name(order);
  }
}
TEST(AllReduceMutant, EpochThatDoesNotGrow_IsARaceInEveryOrder) {
  for (const auto& order : kOrders) {
    EXPECT_EQ(race_of(all_reduce_flag_kept::all_reduce_norm, order), "race") << order_name(order);
  }
}
TEST(AllReduceMutant, OneBufferForAllEpochs_IsARaceInEveryOrder) {
  for (const auto& order : kOrders) {
    EXPECT_EQ(race_of(all_reduce_one_buffer::all_reduce_norm, order), "race") << order_name(order);
  }
}
#endif

}  // namespace
}  // namespace gpu::DSV3_BACKEND
