#include "simulator/all_to_all.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "model/check.hpp"
#include "simulator/alltoall_tables.hpp"
#include "simulator/alltoall_validation.hpp"
#include "simulator/dispatch_matrix.hpp"
#include "simulator/error_summary.hpp"
#include "simulator/fit_constants.hpp"

namespace simulator {
namespace {

AllToAllSetup setup_of(const char* gpu, AllToAllBackend backend, int64_t num_ranks) {
  return {.hardware = load_hardware(gpu), .backend = backend, .num_ranks = num_ranks};
}

double dispatch_us(const AllToAllSetup& setup, double tokens) {
  const AllToAll all_to_all(setup);
  return all_to_all.dispatch_us(even_copies(all_to_all, setup.backend, setup.num_ranks, 8, tokens));
}

// ../shared/measurements/README.md, section 0: t = a + b * tokens of H100 EP16, 32 and 64, dispatch 19.3 + 0.641, 25.0 + 0.929,
// 27.6 + 1.074, combine 25.1 + 1.235, 26.5 + 1.862, 25.3 + 2.174; their own errors are 1 to 3 %. One law for the three sizes.
TEST(AllToAll, LowLatency_FollowsThePublishedLines) {
  struct Line {
    int64_t ranks;
    double dispatch_fixed, dispatch_slope, combine_fixed, combine_slope;
  };
  for (const Line& line :
       {Line{16, 19.3, 0.641, 25.1, 1.235}, Line{32, 25.0, 0.929, 26.5, 1.862}, Line{64, 27.6, 1.074, 25.3, 2.174}}) {
    const AllToAll all_to_all(setup_of("h100", AllToAllBackend::kDeepEpLowLatency, line.ranks));
    for (const double tokens : {8.0, 64.0, 256.0}) {
      const TierCopies copies = even_copies(all_to_all, AllToAllBackend::kDeepEpLowLatency, line.ranks, 8, tokens);
      const double dispatch = line.dispatch_fixed + line.dispatch_slope * tokens;
      const double combine = line.combine_fixed + line.combine_slope * tokens;
      EXPECT_NEAR(all_to_all.dispatch_us(copies), dispatch, 0.04 * dispatch) << line.ranks << ", " << tokens;
      EXPECT_NEAR(all_to_all.combine_us(copies), combine, 0.04 * combine) << line.ranks << ", " << tokens;
    }
    EXPECT_TRUE(all_to_all.basis().is_measured);
  }
}

// By hand: EP32 on 4 nodes, 8 copies: 6 leave the node, 1.75 stay in it but leave the rank. With one copy a node: 4 (1 - (3/4)^8)
// nodes reached, 3/4 of them remote.
TEST(AllToAll, Copies_AreCountedForEachTier) {
  const AllToAll all_to_all(setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 32));
  const TierCopies copies = even_copies(all_to_all, AllToAllBackend::kDeepEpLowLatency, 32, 8, 10);
  EXPECT_DOUBLE_EQ(copies.network, 60);
  EXPECT_DOUBLE_EQ(copies.nvlink, 17.5);
  EXPECT_NEAR(even_copies(all_to_all, AllToAllBackend::kDeepEpNormal, 32, 8, 10).network, 27.0, 0.01);
  EXPECT_DOUBLE_EQ(even_copies(all_to_all, AllToAllBackend::kAllGatherReduceScatter, 32, 8, 10).network, 240);
}

TEST(AllToAll, MoreBandwidthOrFewerTokens_IsNeverSlower) {
  for (const auto backend : {AllToAllBackend::kDeepEpLowLatency,
                             AllToAllBackend::kDeepEpLowLatencyDedup,
                             AllToAllBackend::kDeepEpNormal,
                             AllToAllBackend::kDeepEpV2,
                             AllToAllBackend::kAllGatherReduceScatter}) {
    for (const int64_t ranks : {8, 16, 48, 64, 144}) {
      AllToAllSetup setup = setup_of("h100", backend, ranks);
      const double before = dispatch_us(setup, 64);
      EXPECT_LE(dispatch_us(setup, 32), before);
      setup.hardware.nic_gb_per_s.value *= 2;
      EXPECT_LE(dispatch_us(setup, 64), before) << backend_name(backend) << " EP" << ranks;
      setup.hardware.nvlink_gb_per_s.value *= 1.5;
      EXPECT_LE(dispatch_us(setup, 4096), dispatch_us(setup_of("h100", backend, ranks), 4096))
          << backend_name(backend) << " EP" << ranks;
    }
  }
}

// A what-if keeps the GPU's name: twice the NVLink halves the bytes' time.
TEST(AllToAll, TwiceTheNvlink_HalvesTheWireTime) {
  AllToAllSetup setup = setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 8);
  const AllToAll plain(setup);
  setup.hardware.nvlink_gb_per_s.value *= 2;
  const AllToAll twice(setup);
  const TierCopies copies{.network = 0, .nvlink = 1000};
  EXPECT_NEAR(twice.dispatch_wire_us(copies), 0.5 * plain.dispatch_wire_us(copies), 1e-9);
}

TEST(AllToAll, DeduplicationSendsLess_AndRoceStartsLater) {
  const double per_copy = dispatch_us(setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 32), 128);
  EXPECT_LT(dispatch_us(setup_of("h100", AllToAllBackend::kDeepEpLowLatencyDedup, 32), 128), per_copy);
  AllToAllSetup roce = setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 32);
  roce.link = NetworkLink::kRoce;
  // arXiv 2505.09343 table 5: 5.6 against 3.7 us across leaves.
  EXPECT_NEAR(dispatch_us(roce, 128) - per_copy, 1.9, 1e-9);
}

TEST(AllToAll, WhatCannotBe_IsRefused) {
  EXPECT_THROW(AllToAll(setup_of("h100", AllToAllBackend::kNvlinkOneSided, 16)), model::InputError);
  EXPECT_NO_THROW(AllToAll(setup_of("gb200-nvl72", AllToAllBackend::kNvlinkOneSided, 72)));
  EXPECT_THROW(AllToAll(setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 0)), model::InputError);
  EXPECT_THROW(parse_backend("deepep"), model::InputError);
  EXPECT_THROW(parse_link("ethernet"), model::InputError);
}

TEST(AllToAll, UnmeasuredGpu_SaysSoAndWidensTheInterval) {
  const AllToAll measured(setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 8));
  const AllToAll carried(setup_of("h800", AllToAllBackend::kDeepEpLowLatency, 8));
  EXPECT_TRUE(measured.basis().is_measured);
  EXPECT_FALSE(carried.basis().is_measured);
  EXPECT_GT(carried.basis().interval_frac, 2 * measured.basis().interval_frac);
  EXPECT_GT(dispatch_us(setup_of("h800", AllToAllBackend::kDeepEpLowLatency, 8), 256),
            dispatch_us(setup_of("h100", AllToAllBackend::kDeepEpLowLatency, 8), 256));
}

TEST(GpuName, IsFoundInWhatTablesWrite) {
  EXPECT_EQ(hardware_of_gpu_name("H100 80GB HBM3"), "h100");
  EXPECT_EQ(hardware_of_gpu_name("GB200 NVL72"), "gb200-nvl72");
  EXPECT_EQ(hardware_of_gpu_name("GB200"), "gb200-nvl72");
  EXPECT_EQ(hardware_of_gpu_name("NVIDIA H200"), "h200");
  EXPECT_EQ(hardware_of_gpu_name("H20"), "h20");
  EXPECT_THROW(hardware_of_gpu_name("MI300X"), model::InputError);
}

TEST(LeastSquares, FindsALine_AndLeavesUnusedUnknownsAtZero) {
  const auto fitted = fit_relative({{1, 2, 0}, {1, 4, 0}, {1, 10, 0}}, {7, 11, 23});
  EXPECT_NEAR(fitted[0], 3, 1e-9);
  EXPECT_NEAR(fitted[1], 2, 1e-9);
  EXPECT_EQ(fitted[2], 0);
}

// By hand: errors +10 %, -20 %, +5 %, 0; the intervals hold the first and the last.
TEST(ErrorSummary, IsWhatItsNamesSay) {
  const ErrorSummary summary =
      summarise({{110, 99, 121, 100}, {80, 70, 90, 100}, {105, 101, 110, 100}, {100, 90, 110, 100}});
  EXPECT_EQ(summary.rows, 4);
  EXPECT_NEAR(summary.median_abs_error_pct, 7.5, 1e-9);
  EXPECT_NEAR(summary.p90_abs_error_pct, 17, 1e-9);
  EXPECT_NEAR(summary.bias_pct, -1.25, 1e-9);
  EXPECT_NEAR(summary.coverage_90_pct, 50, 1e-9);
}

TEST(ReadAllToAllRows, BadLinesAreNamed) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "dsv3_alltoall.csv";
  const auto message = [&](const std::string& text) -> std::string {
    std::ofstream(path) << text;
    try {
      read_all_to_all_rows(path);
    } catch (const model::InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string header =
      "gpu,num_nodes,ep_size,tokens_per_rank,hidden,topk,num_experts,dispatch_latency_us,combine_latency_us,notes\n";
  EXPECT_EQ(message(header + "H100,1,8,4,7168,8,256,15.7,14,sglang image v0.5.12-cu130\n"), "accepted");
  EXPECT_EQ(read_all_to_all_rows(path).front().version, "0.5.12");
  EXPECT_EQ(read_all_to_all_rows(path).size(), 2U);
  EXPECT_NE(message(header + "H100,1,8,4,7168,8,256,x,14,\n").find(":2: dispatch_latency_us"), std::string::npos);
  EXPECT_NE(message(header + "H100,1,8,-4,7168,8,256,1,14,\n").find(":2: tokens_per_rank"), std::string::npos);
  EXPECT_NE(message("gpu,latency_ns\nH100,1\n").find("unknown column"), std::string::npos);
  EXPECT_NE(message(header).find("without measured rows"), std::string::npos);
}

// Four ranks, eight tokens, eight experts, two choices each: two experts and two tokens a rank, by hand.
TEST(DispatchMatrix, FourRanksEightTokensEightExperts) {
  TraceLayer layer;
  for (const auto& [first, second] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {2, 7}, {3, 2}, {0, 4}, {4, 6}, {5, 0}, {7, 6}, {1, 3}}) {
    layer.tokens.push_back({.rank = -1, .experts = {first, second}});
  }
  const DispatchMatrix matrix = dispatch_matrix(layer, contiguous_placement(8, 4, 8, false), 2);
  EXPECT_EQ(matrix.copies, (std::vector<std::vector<int64_t>>{{2, 1, 0, 1}, {1, 2, 1, 0}, {1, 0, 2, 1}, {1, 1, 0, 2}}));
  EXPECT_EQ(matrix.tokens, (std::vector<std::vector<int64_t>>{{1, 1, 0, 1}, {1, 1, 1, 0}, {1, 0, 2, 1}, {1, 1, 0, 1}}));
  // Nodes {0, 1} and {2, 3}: token 1 and token 3 leave node 0; token 5 (to rank 0) and token 7 (to ranks 0 and 1) leave node 1, once each.
  EXPECT_EQ(matrix.node_copies_sent, (std::vector<int64_t>{1, 1, 1, 1}));
  int64_t sent = 0;
  int64_t received = 0;
  for (size_t from = 0; from < 4; ++from) {
    sent += std::accumulate(matrix.copies[from].begin(), matrix.copies[from].end(), int64_t{0});
    for (size_t to = 0; to < 4; ++to) {
      received += matrix.copies[to][from];
    }
  }
  EXPECT_EQ(sent, 16);
  EXPECT_EQ(received, 16);
}

TEST(DispatchMatrixTables, BytesSentEqualBytesReceived) {
  const auto tables = dispatch_matrix_tables({.num_ranks = 8,
                                              .tokens_per_rank = 16,
                                              .router = {.num_experts = 64, .experts_per_token = 6},
                                              .skew = parse_skew("lognormal:1.5")});
  const Table& ranks = tables.back();
  const auto sum = [&](const char* key) {
    const auto column = std::ranges::find(ranks.columns, key, &Column::key) - ranks.columns.begin();
    int64_t total = 0;
    for (const auto& row : ranks.rows) {
      total += std::get<int64_t>(row[static_cast<size_t>(column)]);
    }
    return total;
  };
  EXPECT_EQ(sum("rows"), 8 * 16 * 6);
  EXPECT_EQ(sum("dispatch_bytes_sent"), sum("dispatch_bytes_received"));
  EXPECT_EQ(sum("combine_bytes_sent"), sum("combine_bytes_received"));
  EXPECT_GT(sum("dispatch_bytes_sent"), 0);
  EXPECT_LE(sum("tokens_sent_once_per_node"), sum("tokens_sent_once_per_rank"));
  EXPECT_LE(sum("tokens_sent_once_per_rank"), sum("copies_sent"));
}

}  // namespace
}  // namespace simulator
