#include "simulator/step_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/check.hpp"
#include "simulator/deployment.hpp"
#include "simulator/op_work.hpp"

namespace simulator {
namespace {

Serving served(const DeploymentRequest& request, const Hardware* hardware = nullptr) {
  Deployment deployment = build_deployment(request);
  if (hardware != nullptr) {
    deployment.hardware = *hardware;
  }
  MoeCurves curves;
  return serve(deployment, choose_fits(built_in_calibrations(), deployment.hardware), curves);
}

DeploymentRequest wide() {
  return {.preset = "h800-ep144-decode"};
}

TEST(StepCost, LeavesAndMemoryItems_AddUpToTheTotals) {
  for (const char* preset : {"h200-tp8", "gb200-ep32", "h800-ep144-decode", "h100-ep72-decode"}) {
    const Serving serving = served({.preset = preset});
    double sum_us = 0;
    for (const StepLeaf& leaf : serving.step.leaves) {
      sum_us += leaf.count * leaf.each_us;
    }
    EXPECT_DOUBLE_EQ(sum_us, serving.step.total_us) << preset;
    double bytes = 0;
    for (const MemoryItem& item : serving.memory.items) {
      bytes += item.bytes;
    }
    EXPECT_DOUBLE_EQ(bytes, serving.memory.total_bytes) << preset;
  }
}

TEST(StepCost, NothingBeatsTheFloor) {
  for (const char* preset : {"h200-tp8", "gb200-ep32", "h800-ep320-decode"}) {
    for (const StepLeaf& leaf : served({.preset = preset}).step.leaves) {
      if (leaf.family) {
        EXPECT_GE(leaf.each_us, leaf.floor_each_us * (1 - 1e-12)) << preset << " " << step_part_info(leaf.part).name;
      }
    }
  }
}

// Bug bank row 102 (aiconfigurator 904): the shared expert's work was not divided by TP.
TEST(StepCost, SharedExpertIsCutByTp) {
  const Deployment deployment = build_deployment({});
  const auto fits = choose_fits(built_in_calibrations(), deployment.hardware);
  MoeCurves curves;
  const auto shared_bytes = [&](int64_t tp) {
    const RankLayout rank{.layout = {.tp = tp}};
    const StepModel model(deployment.config, deployment.hardware, fits, deployment.engine, rank, curves);
    const StepCost cost = model.decode({.sequences = 8, .kv_len = 1024});
    return std::ranges::find(cost.leaves, StepPart::kSharedExpert, &StepLeaf::part)->work.weight_bytes;
  };
  EXPECT_DOUBLE_EQ(shared_bytes(1), 8 * shared_bytes(8));
}

TEST(StepCost, FasterHardware_IsNeverSlower) {
  for (const DeploymentRequest& request : {DeploymentRequest{.preset = "h200-tp8"}, wide()}) {
    const Hardware base = build_deployment(request).hardware;
    const double before_ms = served(request, &base).tpot_ms;
    for (Figure Hardware::*figure : {&Hardware::memory_gb_per_s,
                                     &Hardware::nvlink_gb_per_s,
                                     &Hardware::nic_gb_per_s,
                                     &Hardware::bf16_dense_tflops}) {
      Hardware faster = base;
      (faster.*figure).value *= 1.5;
      EXPECT_LE(served(request, &faster).tpot_ms, before_ms);
    }
  }
}

// By hand from config.json: 7168 x (1536 + 576) + 128 x (1536 x 192 + 512 x 256 + 7168 x 128) = 187,105,280 (the report's 187.1 M
// has the two gains as well); an expert 3 x 7168 x 2048 = 44,040,192.
TEST(StepCost, WeightsOfALayer_AreThoseOfThePublishedConfig) {
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  EXPECT_EQ(attention_weights(config, 128), 187105280);
  EXPECT_EQ(expert_weights(config), 44040192);
  // 64 sequences of 4096 positions, 576 values of a byte.
  EXPECT_EQ(attention_work(config, {.heads = 16, .sequences = 64, .kv_len = 4096, .cache_bytes_each = 1}).other_bytes,
            64.0 * 4096 * 576);
}

// Shared-expert products shrink with TP (aiconfigurator 904).
TEST(StepCost, SharedExpert_IsDividedByTp) {
  const auto bytes = [](const char* layout) {
    for (const StepLeaf& leaf : served({.gpu = "b300", .layout = parse_shorthand(layout)}).step.leaves) {
      if (leaf.part == StepPart::kSharedExpert) {
        return leaf.work.weight_bytes;
      }
    }
    return 0.0;
  };
  EXPECT_DOUBLE_EQ(bytes("tp4"), 2 * bytes("tp8"));
}

double part_of(const StepCost& cost, StepPart part, double OpWork::*figure) {
  double sum = 0;
  for (const StepLeaf& leaf : cost.leaves) {
    sum += leaf.part == part ? leaf.count * leaf.work.*figure : 0;
  }
  return sum;
}

// Every token sends nine copies in place of eight, and no GPU has a shared expert beside its slot (V3 report, 3.4.2: EP320).
TEST(StepCost, RoutedSharedExpert_IsOneMoreCopyAndNoWeightsOfItsOwn) {
  DeploymentRequest request{.gpu = "h800",
                            .batch = 32,
                            .redundant_experts = 64,
                            .eplb = true,
                            .decode_only = true,
                            .layout = parse_shorthand("dep320")};
  const Serving replicated = served(request);
  request.shared_expert = "routed";
  request.redundant_experts = 63;
  const Serving routed = served(request);
  EXPECT_NEAR(part_of(routed.step, StepPart::kDispatch, &OpWork::network_bytes) /
                  part_of(replicated.step, StepPart::kDispatch, &OpWork::network_bytes),
              9.0 / 8,
              1e-6);
  EXPECT_EQ(part_of(routed.step, StepPart::kSharedExpert, &OpWork::weight_bytes), 0);
  const auto bytes_of = [](const Serving& serving, const char* name) {
    const auto item = std::ranges::find(serving.memory.items, name, &MemoryItem::name);
    return item == serving.memory.items.end() ? 0.0 : item->bytes;
  };
  EXPECT_EQ(bytes_of(replicated, "shared expert"), 58.0 * 44040192);
  EXPECT_EQ(bytes_of(routed, "shared expert"), 0);
  EXPECT_EQ(bytes_of(routed, "routed experts"), bytes_of(replicated, "routed experts"));
}

// TP8 on one node: whole on every rank, an eighth of the tokens each, in place of an eighth of the weights.
TEST(StepCost, ReplicatedSharedExpert_IsReadWhole) {
  DeploymentRequest request{.gpu = "b300", .layout = parse_shorthand("tp8")};
  const double sharded = part_of(served(request).step, StepPart::kSharedExpert, &OpWork::weight_bytes);
  request.shared_expert = "replicated";
  const StepCost whole = served(request).step;
  EXPECT_DOUBLE_EQ(part_of(whole, StepPart::kSharedExpert, &OpWork::weight_bytes), 8 * sharded);
}

// Three dense layers of 3 x 7168 x 18432 numbers.
TEST(StepCost, DenseTp_CutsDenseLayersAlone) {
  constexpr double kDenseBytes = 3.0 * 3 * 7168 * 18432;
  DeploymentRequest request{.gpu = "h200", .batch = 16, .decode_only = true, .layout = parse_shorthand("dep16")};
  for (const int64_t ranks : {1, 8}) {
    request.dense_tp = ranks;
    const StepCost step = served(request).step;
    EXPECT_DOUBLE_EQ(part_of(step, StepPart::kDenseFfn, &OpWork::weight_bytes),
                     kDenseBytes / static_cast<double>(ranks));
    // The tokens of eight DP ranks, 16 each, in BF16, once a dense layer.
    EXPECT_DOUBLE_EQ(part_of(step, StepPart::kAllReduce, &OpWork::message_bytes),
                     ranks == 1 ? 0 : 3.0 * 8 * 16 * 7168 * 2);
  }
}

TEST(Layout, PlacesThatCannotBe_AreRefusedWithWhatWould) {
  const auto message = [](const DeploymentRequest& request) -> std::string {
    try {
      build_deployment(request);
    } catch (const model::InputError& error) {
      return error.what();
    }
    return "";
  };
  const LayoutRequest dep16 = parse_shorthand("dep16");
  EXPECT_NE(message({.shared_expert = "sharded", .layout = dep16}).find("replicated or routed would"),
            std::string::npos);
  EXPECT_NE(message({.shared_expert = "routed", .layout = dep16}).find("--redundant-experts 15 would"),
            std::string::npos);
  EXPECT_NE(message({.shared_expert = "everywhere", .layout = dep16}).find("replicated, sharded or routed"),
            std::string::npos);
  EXPECT_NE(message({.dense_tp = 3, .layout = dep16}).find("expected one of 1, 2, 4, 8, 16"), std::string::npos);
}

// One rank of eight prefills while seven wait: a token waits for eight times as many prompts, each with fewer tokens in its experts.
TEST(Serving, PrefillInTurn_StopsEveryRankForEachPrompt) {
  DeploymentRequest request{
      .gpu = "h200", .prompt_tokens = 1024, .answer_tokens = 1024, .batch = 16, .layout = parse_shorthand("dep8")};
  const Serving together = served(request);
  request.prefill_in_turn = true;
  const Serving in_turn = served(request);
  EXPECT_LT(in_turn.prompt.total_us, together.prompt.total_us);
  const double prompts_met = (8 * 16.0 - 1) / (16 - 1);
  EXPECT_NEAR(in_turn.stall_ms / together.stall_ms,
              prompts_met * in_turn.prompt.total_us / together.prompt.total_us,
              1e-9 * prompts_met);
}

// 1 + 0.9 + 0.9 x 0.8.
TEST(Serving, AcceptanceByPosition_MultipliesUp) {
  EXPECT_DOUBLE_EQ(tokens_per_step({0.9, 0.8}), 2.62);
  EXPECT_DOUBLE_EQ(tokens_per_step({}), 1);
}

TEST(Serving, ModelThatDoesNotFit_IsRefusedWithNumbers) {
  try {
    served({.gpu = "h200", .layout = parse_shorthand("tp2")});
    FAIL() << "671 GB on two GPUs of 141 GB";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("GPUs would hold it"), std::string::npos) << error.what();
  }
}

TEST(Serving, PrefillThatCannotKeepUp_StarvesDecode) {
  DeploymentRequest request{.gpu = "h200",
                            .prompt_tokens = 8192,
                            .answer_tokens = 256,
                            .concurrency = 4096,
                            .layout = parse_shorthand("dep32"),
                            .prefill_layout = parse_shorthand("tp8")};
  const Serving starved = served(request);
  EXPECT_EQ(starved.limit, Limit::kPrefill);
  EXPECT_LT(starved.decode_sequences, starved.asked_sequences / 2);
  // More requests change nothing; another prefill worker does.
  request.concurrency = 8192;
  EXPECT_NEAR(served(request).tpot_ms, starved.tpot_ms, 1e-6 * starved.tpot_ms);
  request.prefill_workers = 2;
  EXPECT_GT(served(request).decode_sequences, 1.5 * starved.decode_sequences);
}

TEST(Layout, ExpertsThatDoNotDivide_AreRefusedWithTheNumberThatWould) {
  const model::ModelConfig config = model::built_in_config("deepseek-v3");
  try {
    check_layout(config, resolve(parse_shorthand("dep48")), 0);
    FAIL() << "48 does not divide 256";
  } catch (const model::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("--redundant-experts 32"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(check_layout(config, resolve(parse_shorthand("dep48")), 32));
}

}  // namespace
}  // namespace simulator
