// The engine on several ranks, each a thread with an emulated device: every op has the bits of one rank, and so have the tokens; a fault
// in what ranks exchange is found, with op and rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "gpu/emulation/peer_group.hpp"
#include "gpu/engine/scheduler.hpp"
#include "simulator/dispatch_matrix.hpp"
#include "simulator/placement.hpp"
#include "simulator/traffic.hpp"
#include "tests/gpu/faulty_ranks.hpp"
#include "tests/tools/verifier.hpp"
#include "tools/common.hpp"
#include "tools/device/engine_dump.hpp"

namespace tools {
namespace {

using model::ParallelLayout;

std::string layout_name(const ParallelLayout& layout) {
  return fmt::format(
      "tp{}dp{}pp{}ep{}{}", layout.tp, layout.dp, layout.pp, layout.ep, layout.sequence_parallel ? "sp" : "");
}

RankDevice emulated_rank(gpu::comm::Communicator& /*world*/, const Peers& peers) {
  return {.links = nullptr, .backend = gpu::make_emulated_backend({.peers = peers})};
}

// The model that every layout of up to eight ranks cuts: a prompt of four ragged sequences, and one step of decoding.
struct ParFixture {
  std::string profile = "v32";
  OpenedCheckpoint checkpoint = open_checkpoint("synthetic:par");
  golden::GoldenFile golden = [&] {
    RecordJob job;
    job.mode = resolved({.profile = profile}, checkpoint.weights->config());
    job.cases = {{.name = "b4", .sequences = {{3, 1, 4}, {15, 92, 65, 35, 89}, {79}, {32, 38}}},
                 {.name = "d0", .after = "b4", .sequences = {{46}, {26}, {43}, {83}}}};
    job.num_threads = 2;
    return record(*checkpoint.weights, job);
  }();
  golden::Dump one_rank = dump_engine(*checkpoint.weights, golden.manifest, make_backend(), {});

  [[nodiscard]] std::unique_ptr<gpu::Backend> make_backend(const Peers& peers = nullptr) const {
    return profile == "fp16" ? gpu::make_emulated_fp16_backend({.peers = peers})
                             : gpu::make_emulated_backend({.peers = peers});
  }
  [[nodiscard]] golden::GatheredDump dump(const ParallelLayout& layout, model::ExpertSlots expert_of_slot = {}) const {
    return dump_ranks(*checkpoint.weights,
                      golden.manifest,
                      [this](gpu::comm::Communicator& /*world*/, const Peers& peers) {
                        return RankDevice{.links = nullptr, .backend = make_backend(peers)};
                      },
                      {.layout = layout, .expert_of_slot = std::move(expert_of_slot)});
  }
  // Every op, to the byte.
  void expect_bits_of_one_rank(const golden::GatheredDump& gathered) const {
    for (const auto& [name, disagreement] : gathered.disagreements) {
      ADD_FAILURE() << name << ": " << disagreement.reason;
    }
    ASSERT_EQ(gathered.dump.tensors.size(), one_rank.tensors.size());
    for (const auto& [name, tensor] : one_rank.tensors) {
      const auto found = gathered.dump.tensors.find(name);
      ASSERT_NE(found, gathered.dump.tensors.end()) << name;
      EXPECT_EQ(found->second.shape, tensor.shape) << name;
      EXPECT_TRUE(std::ranges::equal(found->second.bytes, tensor.bytes)) << name;
    }
  }
  [[nodiscard]] golden::Verdict verify(const golden::GatheredDump& gathered) const {
    const auto rules = rules_of(mode_of(golden.manifest));
    auto verdict = golden::compare(checkpoint.weights->config(),
                                   golden,
                                   gathered.dump,
                                   {},
                                   [&](const model::Workload& workload, double num_sigmas) {
                                     return std::make_unique<ReferenceRecompute>(
                                         *checkpoint.weights, rules, workload, num_sigmas, 2);
                                   });
    golden::assign_ranks(gathered, verdict);
    return verdict;
  }
};

const ParFixture& par() {
  static const ParFixture fixture;
  return fixture;
}

// Of a rank: tokens get to their experts as they do between processes.
void through_the_host(int /*rank*/, gpu::EngineOptions& options) {
  options.exchanges_by_kernels = false;
}

class RankLayouts : public testing::TestWithParam<ParallelLayout> {};

TEST_P(RankLayouts, HaveTheBitsOfOneRank) {
  par().expect_bits_of_one_rank(par().dump(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         RankLayouts,
                         testing::Values(ParallelLayout{.ep = 2, .dp = 2},
                                         ParallelLayout{.ep = 3, .dp = 3},
                                         ParallelLayout{.ep = 8, .dp = 8},
                                         ParallelLayout{.ep = 2, .dp = 4},
                                         ParallelLayout{.pp = 3},
                                         ParallelLayout{.tp = 2, .ep = 2},
                                         ParallelLayout{.tp = 2, .ep = 4, .dp = 2},
                                         ParallelLayout{.tp = 2, .ep = 2, .pp = 2},
                                         ParallelLayout{.tp = 4, .ep = 8, .dp = 2},
                                         ParallelLayout{.tp = 8, .ep = 8},
                                         ParallelLayout{.tp = 2},
                                         ParallelLayout{.tp = 4, .ep = 2},
                                         ParallelLayout{.tp = 8, .ep = 2, .dp = 2},
                                         ParallelLayout{.tp = 2, .pp = 2, .dp = 2},
                                         ParallelLayout{.tp = 2, .ep = 4, .dp = 2, .sequence_parallel = true},
                                         ParallelLayout{.tp = 4, .ep = 2, .sequence_parallel = true},
                                         ParallelLayout{.tp = 4, .ep = 4, .pp = 2, .sequence_parallel = true}),
                         [](const auto& layout) { return layout_name(layout.param); });

TEST(EngineRanks, ThroughTheHost_HaveTheBitsOfOneRank) {
  for (const ParallelLayout& layout : {ParallelLayout{.ep = 3, .dp = 3},
                                       ParallelLayout{.tp = 2, .ep = 4, .dp = 2},
                                       ParallelLayout{.tp = 4, .ep = 4, .pp = 2, .sequence_parallel = true}}) {
    SCOPED_TRACE(layout_name(layout));
    par().expect_bits_of_one_rank(dump_ranks(*par().checkpoint.weights,
                                             par().golden.manifest,
                                             emulated_rank,
                                             {.layout = layout, .change = through_the_host}));
  }
}

TEST(EngineRanks, PassOpByOp) {
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 2, .ep = 4, .dp = 2}, ParallelLayout{.tp = 4, .ep = 2}}) {
    const auto verdict = par().verify(par().dump(layout));
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
  }
}

// What ranks share of a sum meets the units of the residual stream behind the tree, so that FP16 has the bits of one rank, too.
TEST(EngineRanks, InFp16_HaveTheBitsOfOneRank_AndPassOpByOp) {
  const ParFixture fp16{.profile = "fp16"};
  for (const ParallelLayout& layout : {ParallelLayout{.tp = 4, .ep = 2},
                                       ParallelLayout{.tp = 2, .ep = 2, .pp = 2},
                                       ParallelLayout{.tp = 2, .ep = 4, .dp = 2, .sequence_parallel = true}}) {
    SCOPED_TRACE(layout_name(layout));
    fp16.expect_bits_of_one_rank(fp16.dump(layout));
  }
  const auto verdict = fp16.verify(fp16.dump({.tp = 2, .ep = 4, .dp = 2}));
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
}

// Slots of 4 layers; the first is dense. Copies on other ranks, three of one expert, two on one rank, and layers that differ.
model::ExpertSlots slots_with_copies() {
  model::ExpertSlots slots(4);
  slots[1] = {0, 1, 2, 3, 4, 8, 5, 6, 7, 8, 9, 0, 10, 11, 12, 13, 14, 15, 8, 3};
  slots[2] = {5, 5, 1, 2, 3, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 4, 0, 2, 1, 5};
  slots[3] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3};
  return slots;
}

TEST(EngineRanks, CopiesOfExperts_ChangeNoBit) {
  for (const ParallelLayout& layout : {ParallelLayout{.ep = 4, .dp = 4},
                                       ParallelLayout{.tp = 2, .ep = 4, .dp = 2},
                                       ParallelLayout{.ep = 2, .pp = 2, .dp = 4}}) {
    SCOPED_TRACE(layout_name(layout));
    par().expect_bits_of_one_rank(par().dump(layout, slots_with_copies()));
  }
}

// Experts in order in `num_slots` slots, then from the first again.
model::ExpertSlots slots_in_order(int64_t num_slots) {
  model::ExpertSlots slots(4);
  for (size_t layer = 1; layer < slots.size(); ++layer) {
    for (int64_t slot = 0; slot < num_slots; ++slot) {
      slots[layer].push_back(slot % 16);
    }
  }
  return slots;
}

// DeepSeek-V3's report, section 3.4: prefill on 32 ranks, TP4 with SP, DP8, EP32, each rank with redundant experts; decode on 320, TP4 with
// SP, EP320 with one expert a rank, of which 64 are redundant or shared: here a sixteenth, 16 experts and 4 copies.
TEST(EngineRanks, LayoutsOfTheReport_HaveTheBitsOfOneRank) {
  par().expect_bits_of_one_rank(
      par().dump({.tp = 4, .ep = 32, .dp = 8, .sequence_parallel = true}, slots_in_order(64)));
  par().expect_bits_of_one_rank(
      par().dump({.tp = 4, .ep = 20, .dp = 5, .sequence_parallel = true}, slots_in_order(20)));
}

TEST(EngineRanks, APlacementThatCannotBe_IsRefused) {
  const auto refuses = [](const ParallelLayout& layout, size_t slot, int64_t expert, const std::string& words) {
    auto slots = slots_with_copies();
    slots[1][slot] = expert;
    try {
      (void)par().dump(layout, slots);
      ADD_FAILURE() << words;
    } catch (const model::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refuses({.ep = 4, .dp = 4}, 1, 2, "layer 1 has no slot for expert 1");
  refuses({.ep = 4, .dp = 4}, 1, 16, "layer 1 has expert 16: expected 0 to 15");
  refuses({.ep = 8, .dp = 8}, 1, 1, "layer 1 has 20 slots");
  refuses({.tp = 4, .ep = 2}, 1, 1, "not below tp");
}

// Of the embedding and the first `num_layers` layers: what lies behind a fault is wrong too, and costs most of the time.
golden::Verdict verdict_with(FaultyRanks::Fault fault, const ParallelLayout& layout, int num_layers) {
  auto gathered = dump_ranks(*par().checkpoint.weights,
                             par().golden.manifest,
                             emulated_rank,
                             {.cases = {"b4"}, .layout = layout, .wrap = [&](gpu::comm::Communicator& world) {
                                return std::make_unique<FaultyRanks>(world, fault);
                              }});
  std::erase_if(gathered.dump.tensors, [&](const auto& tensor) {
    for (int layer = 0; layer < num_layers; ++layer) {
      if (tensor.first.starts_with("b4/layer." + std::to_string(layer) + ".")) {
        return false;
      }
    }
    return tensor.first != "b4/embed";
  });
  return par().verify(gathered);
}

TEST(EngineRanks, ARankThatSeesOnlyItsOwnPart_IsFound) {
  for (const auto& [fault, op] : {std::pair{FaultyRanks::Fault::kOwnDataOnly, "layer.0.attn.o_proj"},
                                  {FaultyRanks::Fault::kNotWaited, "layer.0.attn.o_proj"},
                                  {FaultyRanks::Fault::kOwnSumOnly, "embed"}}) {
    const auto verdict = verdict_with(fault, {.tp = 2, .ep = 2}, 1);
    ASSERT_NE(verdict.first_divergence(), nullptr);
    EXPECT_EQ(verdict.first_divergence()->op, op);
    EXPECT_EQ(verdict.first_divergence()->rank, 1);
  }
}

// Rank 2, which has no tokens of its own, has not moved expert 8 away and expert 12 in: it works on the tokens of 12 with 8.
TEST(EngineRanks, APlacementOfBeforeAMove_IsFound) {
  const auto before = slots_in_order(24);
  auto after = before;
  std::swap(after[1][8], after[1][12]);
  const auto gathered = dump_ranks(*par().checkpoint.weights,
                                   par().golden.manifest,
                                   emulated_rank,
                                   {.cases = {"b4"},
                                    .layout = {.ep = 8, .dp = 8},
                                    .expert_of_slot = after,
                                    .change = [&](int rank, gpu::EngineOptions& options) {
                                      if (rank == 2) {
                                        options.expert_of_slot = before;
                                      }
                                    }});
  const auto verdict = par().verify(gathered);
  ASSERT_NE(verdict.first_divergence(), nullptr);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.1.moe.expert.8.gate");
  EXPECT_EQ(verdict.first_divergence()->rank, 2);
}

// Rank 3 holds expert 8 twice, in the slot of the copy of 3 as well: of the tokens for 3, those that go to the copy are worked on by 8.
TEST(EngineRanks, AnExpertDuplicatedInAnothersSlot_IsFound) {
  const auto wanted = slots_with_copies();
  auto duplicated = wanted;
  duplicated[1][19] = 8;
  for (const bool by_kernels : {true, false}) {
    const auto gathered = dump_ranks(*par().checkpoint.weights,
                                     par().golden.manifest,
                                     emulated_rank,
                                     {.cases = {"b4"},
                                      .layout = {.ep = 4, .dp = 4},
                                      .expert_of_slot = wanted,
                                      .change = [&](int rank, gpu::EngineOptions& options) {
                                        options.exchanges_by_kernels = by_kernels;
                                        if (rank == 3) {
                                          options.expert_of_slot = duplicated;
                                        }
                                      }});
    const auto verdict = par().verify(gathered);
    ASSERT_NE(verdict.first_divergence(), nullptr);
    EXPECT_EQ(verdict.first_divergence()->op, "layer.1.moe.expert.3.gate");
    EXPECT_EQ(verdict.first_divergence()->rank, 3);
  }
}

TEST(EngineRanks, ASharedExpertThatEveryRankAddsWhole_IsFound) {
  const auto verdict = verdict_with(FaultyRanks::Fault::kSharedExpertTwice, {.tp = 2, .ep = 2}, 2);
  ASSERT_NE(verdict.first_divergence(), nullptr);
  EXPECT_EQ(verdict.first_divergence()->op, "layer.1.moe.shared");
  EXPECT_EQ(verdict.first_divergence()->rank, 1);
}

TEST(EngineRanks, AWrongMapOfRanks_IsFound) {
  const auto verdict = verdict_with(FaultyRanks::Fault::kWrongRank, {.ep = 4, .dp = 4}, 2);
  ASSERT_NE(verdict.first_divergence(), nullptr);
  EXPECT_NE(verdict.first_divergence()->op.find("layer.1.moe.expert."), std::string::npos)
      << verdict.first_divergence()->op;
}

// The trained model's own text on four ranks: what each of them sends and computes for its experts is what the simulator replays from the
// same routing, token by token.
TEST(EngineRanks, SendAndComputeWhatTheSimulatorReplays) {
  constexpr int64_t kNumRanks = 4;
  RecordJob job;
  job.mode = resolved({}, mini().checkpoint().config());
  std::vector<std::vector<int32_t>> sequences;
  for (int32_t first = 0; first < kNumRanks; ++first) {
    std::vector<int32_t> ids{260, 584, 270, 260, 341, 470, 322, 373, 13, 551, 527, 19};
    std::rotate(ids.begin(), ids.begin() + 2 * first, ids.end());
    sequences.push_back(std::move(ids));
  }
  job.cases = {{.name = "b4", .sequences = sequences}};
  job.num_threads = 2;
  const auto golden = record(mini().checkpoint(), job);
  std::vector<gpu::comm::TokenExchange::Counts> counts(kNumRanks);
  int64_t token_bytes = 0;
  const auto gathered = dump_ranks(mini().checkpoint(),
                                   golden.manifest,
                                   emulated_rank,
                                   {.layout = {.ep = kNumRanks, .dp = kNumRanks},
                                    .on_done =
                                        [&](const gpu::Engine& engine) {
                                          const auto rank = static_cast<size_t>(engine.shard().ep_rank);
                                          counts[rank] = engine.exchange()->counts();
                                          if (rank == 0) {
                                            token_bytes = engine.exchange()->token_bytes();
                                          }
                                        },
                                    .change = through_the_host});
  const auto& config = mini().checkpoint().config();
  EXPECT_EQ(
      token_bytes,
      simulator::copy_bytes(config.hidden_size).dispatch + simulator::copy_bytes(config.hidden_size).dispatch_scales);
  const auto placement =
      simulator::contiguous_placement(config.n_routed_experts, kNumRanks, config.n_routed_experts, false);
  std::vector<gpu::comm::TokenExchange::Counts> replayed(kNumRanks);
  int64_t num_layers = 0;
  for (const auto& [name, ids] : gathered.dump.tensors) {
    if (!name.ends_with(".moe.topk_ids")) {
      continue;
    }
    ++num_layers;
    simulator::TraceLayer layer;
    for (int64_t token = 0; token < ids.num_rows(); ++token) {
      const auto chosen =
          ids.codes<int32_t>().subspan(static_cast<size_t>(token * ids.row_len()), static_cast<size_t>(ids.row_len()));
      layer.tokens.push_back({-1, {chosen.begin(), chosen.end()}});
    }
    const auto matrix = simulator::dispatch_matrix(layer, placement, kNumRanks);
    for (size_t from = 0; from < kNumRanks; ++from) {
      for (size_t to = 0; to < kNumRanks; ++to) {
        replayed[to].num_computed_rows += matrix.copies[from][to];
        if (from != to) {
          replayed[from].num_sent_tokens += matrix.tokens[from][to];
          replayed[to].num_returned_rows += matrix.copies[from][to];
        }
      }
    }
  }
  EXPECT_EQ(num_layers, config.num_hidden_layers - config.first_k_dense_replace);
  for (size_t rank = 0; rank < kNumRanks; ++rank) {
    EXPECT_EQ(counts[rank].num_sent_tokens, replayed[rank].num_sent_tokens) << rank;
    EXPECT_EQ(counts[rank].num_computed_rows, replayed[rank].num_computed_rows) << rank;
    EXPECT_EQ(counts[rank].num_returned_rows, replayed[rank].num_returned_rows) << rank;
    EXPECT_GT(counts[rank].num_sent_tokens, 0) << rank;
  }
}

// What a scheduler on each rank generates, as the first rank of each data-parallel group tells it.
std::vector<std::vector<int32_t>> generate(const ParallelLayout& layout,
                                           int64_t num_drafts,
                                           bool use_graphs,
                                           int64_t num_micro_batches = 1) {
  const std::vector<std::vector<int32_t>> prompts{{3, 1, 4, 15}, {92, 65}, {35, 89, 79, 32, 38, 46, 26}};
  const gpu::SchedulerOptions scheduling{.chunk_len = 5, .num_drafts = num_drafts};
  std::vector<std::vector<int32_t>> tokens(prompts.size());
  std::mutex mutex;
  const auto num_ranks = static_cast<int>(layout.num_ranks());
  const auto peers = std::make_shared<gpu::emulation::PeerGroup>(num_ranks);
  const auto run_rank = [&](gpu::comm::Communicator& world) {
    gpu::Engine engine(*par().checkpoint.weights,
                       gpu::make_emulated_backend({.peers = peers}),
                       {.limits = gpu::Scheduler::limits_of(par().checkpoint.weights->config(), scheduling, 2, 16),
                        .num_pages = 2,
                        .layout = layout,
                        .world = &world,
                        .exchanges_by_kernels = true,
                        .num_micro_batches = num_micro_batches,
                        .use_graphs = use_graphs});
    const auto at = model::parallel_plan(engine.config(), layout).place(world.rank());
    std::vector<gpu::Request> own;
    std::vector<size_t> numbers;
    for (auto r = static_cast<size_t>(at.dp_rank); r < prompts.size(); r += static_cast<size_t>(layout.dp)) {
      own.push_back({.prompt = prompts[r], .max_new_tokens = 2 + static_cast<int64_t>(r)});
      numbers.push_back(r);
    }
    gpu::Scheduler scheduler(engine, scheduling);
    scheduler.run(own, [&](size_t request, const gpu::NewToken& token) {
      if (at.stage == 0 && at.tp_rank == 0) {
        const std::lock_guard lock(mutex);
        tokens[numbers[request]].push_back(token.id);
      }
      return true;
    });
  };
  gpu::comm::run_thread_ranks(num_ranks, {}, run_rank, [&](int, const std::string& what) { peers->fail(what); });
  return tokens;
}

TEST(EngineRanks, GenerateTheTokensOfOneRank_WithDraftsGraphsAndRanksWithoutWork) {
  const auto expected = generate({}, 0, false);
  EXPECT_EQ(generate({.ep = 4, .dp = 4}, 2, true), expected);
  EXPECT_EQ(generate({.tp = 2, .ep = 4, .pp = 2, .dp = 2}, 1, false), expected);
}
TEST(EngineRanks, GenerateTheTokensOfOneRank_InMicroBatchesOfStages) {
  const auto expected = generate({}, 0, false);
  EXPECT_EQ(generate({.pp = 3}, 1, true, 2), expected);
  EXPECT_EQ(generate({.tp = 2, .ep = 4, .pp = 2, .dp = 2, .sequence_parallel = true}, 2, true, 3), expected);
}

}  // namespace
}  // namespace tools
