// Planted faults of pipelines made of barriers, copied tiles and products of warpgroups: each is found in every order, and the same kernel
// without the fault gives no report. Compiled for checking.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/kernels/linear_tile.cuh"
#include "tests/gpu/harness.hpp"

namespace gpu::DSV3_BACKEND {
namespace {

using emulation::Fault;
using emulation::FaultKind;

enum class Planted {
  kNothing,
  kNoWaitForTile,
  kWrongParityForTile,
  kNoWaitForStage,
  kWrongParityForStage,
  kTooFewBytes,
  kTooManyBytes,
  kNoFenceBeforeProduct,
  kProductNotWaitedFor,
  kStageGivenBackTooEarly,
  kBarrierNotInitialised,
  kMisalignedTile,
  kTileNotWaitedForAtTheEnd,
  kHalfAWarpgroup,
  kNoAsyncFence,
};

constexpr int kStages = 2;
constexpr int kTiles = 5;
constexpr int kRows = 64;
constexpr int kTileBytes = kRows * kPieceBytes;
constexpr int kMultipliers = 128;

struct TilesShared {
  unsigned char tiles[kStages][kRows][kPieceBytes];
  Barrier full[kStages];
  Barrier empty[kStages];
};

struct TilesArguments {
  TensorMap map;  // kTiles tiles of kRows rows, 128 bytes
  Planted fault = Planted::kNothing;
  float* out = nullptr;  // [kMultipliers, kRows / 2]
};

// out = sum over tiles of tile * tile^T, as fp8_linear_sm90 goes about it.
GPU_KERNEL multiply_tiles(TilesArguments a) {
  auto& shared = *shared_tiles_as<TilesShared>();
  const int thread = static_cast<int>(thread_idx().x);
  if (thread == 0) {
    for (int stage = 0; stage < kStages && a.fault != Planted::kBarrierNotInitialised; ++stage) {
      init_barrier(shared.full[stage], 1);
      init_barrier(shared.empty[stage], kMultipliers / kLanes);
    }
    fence_barrier_init();
  }
  sync_threads();
  if (thread >= kMultipliers) {
    const int num_loads = kTiles + (a.fault == Planted::kTileNotWaitedForAtTheEnd ? 1 : 0);
    for (int tile = 0; thread == kMultipliers && tile < num_loads; ++tile) {
      const int stage = tile % kStages;
      const int parity = tile / kStages % 2;
      if (a.fault != Planted::kNoWaitForStage) {
        wait(shared.empty[stage], a.fault == Planted::kWrongParityForStage ? parity : parity ^ 1);
      }
      const int bytes = a.fault == Planted::kTooFewBytes    ? kTileBytes / 2
                        : a.fault == Planted::kTooManyBytes ? kTileBytes * 2
                                                            : kTileBytes;
      arrive_and_expect(shared.full[stage], bytes);
      load_tile(shared.tiles[stage][a.fault == Planted::kMisalignedTile ? 4 : 0],
                a.map,
                0,
                int64_t{tile % kTiles} * kRows,
                shared.full[stage]);
    }
    return;
  }
  float sum[kRows / 2] = {};
  float product[kRows / 2] = {};
  for (int tile = 0; tile < kTiles; ++tile) {
    const int stage = tile % kStages;
    const int parity = tile / kStages % 2;
    if (a.fault != Planted::kNoWaitForTile) {
      wait(shared.full[stage], a.fault == Planted::kWrongParityForTile ? parity ^ 1 : parity);
    }
    if (a.fault == Planted::kHalfAWarpgroup && thread >= kMultipliers / 2) {
      return;
    }
    if (a.fault != Planted::kNoFenceBeforeProduct) {
      fence_products();
    }
    multiply_warpgroup_e4m3<kRows>(product, shared.tiles[stage], shared.tiles[stage], false);
    commit_products();
    const auto give_back = [&] {
      if (thread % kLanes == 0) {
        arrive(shared.empty[stage]);
      }
    };
    if (a.fault == Planted::kStageGivenBackTooEarly) {
      give_back();
    }
    if (a.fault != Planted::kProductNotWaitedFor || tile != kTiles - 1) {
      wait_products<0>(product);
    }
    if (a.fault != Planted::kStageGivenBackTooEarly) {
      give_back();
    }
    for (int i = 0; i < kRows / 2; ++i) {
      sum[i] = add(sum[i], product[i]);
    }
  }
  for (int i = 0; i < kRows / 2; ++i) {
    a.out[thread * (kRows / 2) + i] = sum[i];
  }
}

// A tile that threads write: without a fence the product may read what was there before.
GPU_KERNEL multiply_written_tile(TilesArguments a) {
  auto& shared = *shared_tiles_as<TilesShared>();
  const int thread = static_cast<int>(thread_idx().x);
  for (int i = thread; i < kTileBytes / 16; i += kMultipliers) {
    store_vector<16>(&shared.tiles[0][i / 8][swizzled(i / 8, i % 8)], Vector<unsigned char, 16>{{0x38}});
  }
  if (a.fault != Planted::kNoAsyncFence) {
    fence_async();
  }
  sync_threads();
  float product[kRows / 2] = {};
  fence_products();
  multiply_warpgroup_e4m3<kRows>(product, shared.tiles[0], shared.tiles[0], false);
  commit_products();
  wait_products<0>(product);
  for (int i = 0; i < kRows / 2; ++i) {
    a.out[thread * (kRows / 2) + i] = product[i];
  }
}

struct Scenario {
  const char* name;
  Planted fault;
  std::vector<FaultKind>
      kinds;  // it may show as any of them: a wrong parity lets early threads pass and late ones wait for ever
};
const std::vector<Scenario> kScenarios = {
    {"no_wait_for_tile", Planted::kNoWaitForTile, {FaultKind::kRace}},
    {"wrong_parity_for_tile", Planted::kWrongParityForTile, {FaultKind::kRace, FaultKind::kDeadlock}},
    {"no_wait_for_stage", Planted::kNoWaitForStage, {FaultKind::kRace}},
    {"wrong_parity_for_stage", Planted::kWrongParityForStage, {FaultKind::kDeadlock}},
    {"too_few_bytes", Planted::kTooFewBytes, {FaultKind::kDeadlock}},
    {"too_many_bytes", Planted::kTooManyBytes, {FaultKind::kDeadlock}},
    {"no_fence_before_product", Planted::kNoFenceBeforeProduct, {FaultKind::kRace}},
    {"product_not_waited_for", Planted::kProductNotWaitedFor, {FaultKind::kRace}},
    {"stage_given_back_too_early", Planted::kStageGivenBackTooEarly, {FaultKind::kRace}},
    {"barrier_not_initialised", Planted::kBarrierNotInitialised, {FaultKind::kRace}},
    {"misaligned_tile", Planted::kMisalignedTile, {FaultKind::kMisaligned}},
    {"tile_not_waited_for_at_the_end", Planted::kTileNotWaitedForAtTheEnd, {FaultKind::kRace}},
    {"half_a_warpgroup", Planted::kHalfAWarpgroup, {FaultKind::kDeadlock}},
    {"no_async_fence", Planted::kNoAsyncFence, {FaultKind::kRace}},
};

// What the kernel gives for rows of ones: thread by thread the number of tiles * 128.
std::vector<float> run(Planted of, Planted fault, const emulation::Order& order) {
  Device device({.order = order});
  const Stream stream = device.create_stream();
  const std::vector<fp8_e4m3> ones(size_t{kTiles} * kRows * kPieceBytes, fp8_e4m3{0x38});
  const Buffer<fp8_e4m3> rows(device, stream, ones, "rows");
  const Buffer<float> out(device, stream, kMultipliers * kRows / 2, "out");
  const TilesArguments arguments{
      make_tensor_map(rows.data(), kTiles * kRows, kPieceBytes, kPieceBytes, kRows), fault, out.data()};
  const bool is_written = of == Planted::kNoAsyncFence;
  launch(stream,
         {.name = "multiply_tiles",
          .grid = {1},
          .block = {static_cast<unsigned>(is_written ? kMultipliers : kMultipliers + kLanes)},
          .shared_bytes = sizeof(TilesShared) + kTileSlackBytes},
         is_written ? multiply_written_tile : multiply_tiles,
         arguments);
  device.synchronize(stream);
  return out.download();
}

class PlantedTiles : public testing::TestWithParam<Scenario> {};

TEST_P(PlantedTiles, IsFoundInEveryOrder_AndOnlyWhenItIsThere) {
  const auto& [name, fault, kinds] = GetParam();
  for (const auto& order : kOrders) {
    const float expected = fault == Planted::kNoAsyncFence ? 8.0f : 128.0f * kTiles;
    for (const float value : run(fault, Planted::kNothing, order)) {
      ASSERT_EQ(value, expected) << order_name(order);
    }
    try {
      (void)run(fault, fault, order);
      ADD_FAILURE() << name << " not found in order " << order_name(order);
    } catch (const Fault& found) {
      EXPECT_NE(std::ranges::find(kinds, found.kind), kinds.end()) << order_name(order) << ": " << found.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlantedTiles, testing::ValuesIn(kScenarios), [](const auto& scenario) {
  return std::string(scenario.param.name);
});

}  // namespace
}  // namespace gpu::DSV3_BACKEND
