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
