// Runs on generated weights: healthy numbers in every mode, the routing that the fixtures promise, and planted faults seen where
// they start.
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "golden/compare.hpp"
#include "tests/tools/verifier.hpp"
#include "tools/faults.hpp"
#include "tools/synthetic/argument.hpp"

namespace tools {
namespace {

const std::vector<std::string> kSmall{"nano", "ragged", "notv3", "edge", "par"};
const ModeFlags kExact{.mode = "exact"};
const ModeFlags kV32{};

// Different ids of a vocabulary of at least 127, in no order.
golden::Case prompt(int32_t num_tokens) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < num_tokens; ++i) {
    ids.push_back((i * 37 + 11) % 127);
  }
  return golden::prompt_case(ids);
}

golden::GoldenFile record_prompts(const model::WeightSource& weights,
                                  const ModeFlags& mode,
                                  std::vector<golden::Case> cases,
                                  const std::string& fault = "") {
  RecordJob job{.mode = resolved(mode, weights.config()), .cases = std::move(cases), .recorded = {}};
  job.with_mtp = mode.mode != "exact" && weights.config().num_nextn_predict_layers > 0;
  job.fault = fault;
  job.num_threads = 2;
  return record(weights, job);
}

golden::Verdict judge(const model::WeightSource& weights,
                      const golden::GoldenFile& golden,
                      const golden::GoldenFile& dump) {
  const auto& m = golden.manifest;
  const auto rules = rules_of(mode_of(m));
  return golden::compare(weights.config(),
                         golden,
                         {.tensors = dump.tensors, .unused = {}},
                         {},
                         [&](const model::Workload& workload, double num_sigmas) {
                           return std::make_unique<ReferenceRecompute>(weights, rules, workload, num_sigmas, 2);
                         });
}

std::vector<double> numbers(const golden::GoldenFile& golden, const std::string& name) {
  return model::to_double(golden.tensors.at(name));
}

double rms(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// One recording of p1, p7 and p33 for each fixture and mode; several claims look at it.
const golden::GoldenFile& recorded(const std::string& name, const ModeFlags& mode) {
  static std::map<std::string, golden::GoldenFile> kept;
  const auto [entry, is_new] = kept.try_emplace(name + mode.mode);
  if (is_new) {
    entry->second =
        record_prompts(*synthetic::open_synthetic("synthetic:" + name), mode, {prompt(1), prompt(7), prompt(33)});
  }
  return entry->second;
}

class EveryFixture : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Small, EveryFixture, testing::ValuesIn(kSmall), [](const auto& fixture) {
  return fixture.param;
});

TEST_P(EveryFixture, NothingCollapsesOrExplodes) {
  const auto config = synthetic::open_synthetic("synthetic:" + GetParam())->config();
  for (const auto& mode : {kExact, kV32}) {
    const auto& golden = recorded(GetParam(), mode);
    for (const auto& [name, tensor] : golden.tensors) {
      const auto values = model::to_double(tensor);
      ASSERT_TRUE(std::ranges::all_of(values, [](double v) { return std::isfinite(v); })) << mode.mode << " " << name;
    }
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const std::string prefix = "p33/layer." + std::to_string(layer);
      const double stream = rms(numbers(golden, prefix + ".output"));
      EXPECT_GT(stream, 0.5) << prefix;
      EXPECT_LT(stream, 5) << prefix;
      // Both halves of the layer matter and neither drowns the other.
      EXPECT_GT(rms(numbers(golden, prefix + ".attn.o_proj")), 0.1 * stream) << prefix;
      EXPECT_GT(rms(numbers(golden, prefix + ".ffn")), 0.1 * stream) << prefix;
    }
    const auto logits = numbers(golden, "p33/logits");
    EXPECT_GT(rms(logits), 1.5);
    EXPECT_LT(rms(logits), 5);
    std::set<int64_t> best;
    for (int64_t t = 0; t < 33; ++t) {
      const auto row = logits.begin() + t * config.vocab_size;
      best.insert(std::max_element(row, row + config.vocab_size) - row);
    }
    EXPECT_GT(best.size(), 12U);
  }
  // Quantisation is noise, not another model: the modes agree in direction.
  const auto exact = numbers(recorded(GetParam(), kExact), "p33/logits");
  const auto rounded = numbers(recorded(GetParam(), kV32), "p33/logits");
  double product = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    product += exact[i] * rounded[i];
  }
  EXPECT_GT(product / (rms(exact) * rms(rounded) * static_cast<double>(exact.size())), 0.9);
}

TEST_P(EveryFixture, InTheFirstMoeLayer_OneExpertHasAllTokens_AndOneHasNone) {
  for (const uint64_t seed : {0, 1}) {
    const auto weights = synthetic::open_synthetic("synthetic:" + GetParam() + "?seed=" + std::to_string(seed));
    const auto& config = weights->config();
    const auto golden = record_prompts(*weights, seed == 0 ? kV32 : kExact, {prompt(33)});
    const auto ids = golden.tensors.at("p33/layer." + std::to_string(config.first_k_dense_replace) + ".moe.topk_ids")
                         .codes<int32_t>();
    EXPECT_EQ(std::ranges::count(ids, 3), 33) << seed;
    EXPECT_EQ(std::ranges::count(ids, config.n_routed_experts - 2), 0) << seed;
  }
}

// A recording judged against itself: the verifier can take what these fixtures hold.
TEST_P(EveryFixture, OwnRunPasses) {
  const auto weights = synthetic::open_synthetic("synthetic:" + GetParam());
  const auto golden = record_prompts(*weights, kV32, {prompt(7)});
  const auto verdict = judge(*weights, golden, golden);
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
}

TEST(SyntheticRun, EveryGroupIsKeptBySomeTokens_AndDroppedByOthers) {
  for (const auto& [name, num_groups] : std::map<std::string, int32_t>{{"nano", 4}, {"ragged", 3}}) {
    const auto ids = recorded(name, kV32).tensors.at("p33/mtp.0.layer.moe.group_ids").codes<int32_t>();
    for (int32_t group = 0; group < num_groups; ++group) {
      EXPECT_GT(std::ranges::count(ids, group), 0) << name << " group " << group;
      EXPECT_LT(std::ranges::count(ids, group), 33) << name << " group " << group;
    }
  }
}

TEST(SyntheticRun, OutlierChannels_AreSeenBehindTheFirstLayer) {
  for (const auto& [name, hidden] : std::map<std::string, int64_t>{{"nano", 256}, {"ragged", 320}}) {
    const auto output = numbers(recorded(name, kV32), "p33/layer.0.output");
    for (const int64_t channel : {int64_t{17}, hidden - 5}) {
      std::vector<double> values;
      for (int64_t t = 0; t < 33; ++t) {
        values.push_back(output[static_cast<size_t>(t * hidden + channel)]);
      }
      EXPECT_GT(rms(values), 2.5 * rms(output)) << name << " channel " << channel;
    }
  }
}

TEST(SyntheticRun, AZeroBlockOfTheUpProjection_MakesAZeroActivationBlock) {
  const auto act = numbers(recorded("nano", kV32), "p33/layer.0.mlp.act");
  for (size_t t = 0; t < 33; ++t) {
    const auto row = act.begin() + static_cast<int64_t>(t * 512);
    EXPECT_TRUE(std::all_of(row + 128, row + 256, [](double v) { return v == 0; }));
    EXPECT_TRUE(std::any_of(row + 256, row + 384, [](double v) { return v != 0; }));
  }
}

// Tokens 0, 1, 2 and 4 of edge are special; 3 is not.
TEST(SyntheticRun, Edge_IsDegenerateWhereItShouldBe) {
  const auto weights = synthetic::open_synthetic("synthetic:edge");
  const auto golden = record_prompts(*weights, kV32, {golden::prompt_case({0, 1, 2, 3, 4, 5, 6, 7, 8, 9})});
  const auto row = [&](const std::string& op, int64_t token) {
    return model::to_double(model::slice_rows(golden.tensors.at("p10/" + op), token, token + 1));
  };
  const auto largest = [](const std::vector<double>& values) {
    return std::abs(*std::ranges::max_element(values, {}, [](double v) { return std::abs(v); }));
  };
  EXPECT_EQ(largest(row("embed", 0)), 0);
  EXPECT_EQ(largest(row("layer.0.attn_norm", 0)), 0);
  EXPECT_GT(largest(row("layer.0.attn_norm", 1)), 0);
  EXPECT_LT(largest(row("layer.0.attn_norm", 1)), 4e-4);  // near the quantiser's smallest amax, 1e-4
  EXPECT_LT(largest(row("layer.0.attn_norm", 4)), 0.5);   // rms_norm_eps weighs as much as the row
  EXPECT_EQ(largest(row("layer.1.moe.router_scores", 2)), 0);
  EXPECT_GT(largest(row("layer.1.moe.router_scores", 3)), 0.1);
  EXPECT_EQ(largest(row("layer.1.moe.topk_weights", 2)), 0);
  EXPECT_EQ(largest(numbers(golden, "p10/layer.1.moe.expert.0")), 0);
  EXPECT_EQ(largest(numbers(golden, "p10/layer.1.moe.expert.1.act")), 0);
  EXPECT_GT(largest(numbers(golden, "p10/layer.1.moe.expert.2")), 0);
  for (const std::string expert : {"4", "5", "6", "7"}) {
    EXPECT_FALSE(golden.tensors.contains("p10/layer.1.moe.expert." + expert));
  }
  const auto verdict = judge(*weights, golden, golden);
  EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kPass) << complaints(verdict);
}

// k-01 needs two block columns in o_proj, which nano does not have.
TEST(SyntheticRun, PlantedFaults_FailWhereTheyStart) {
  for (const auto& [id, name] : std::map<std::string, std::string>{
           {"bb-02", "nano"}, {"bb-03", "nano"}, {"bb-18", "nano"}, {"k-01", "ragged"}, {"k-02", "nano"}}) {
    const auto weights = synthetic::open_synthetic("synthetic:" + name);
    const auto golden = record_prompts(*weights, kV32, {prompt(9)});
    // The cases of the golden file hold the drafted ids, which the faulty run must be fed too.
    const auto verdict = judge(*weights, golden, record_prompts(*weights, kV32, golden.manifest.cases, id));
    EXPECT_EQ(verdict.outcome, golden::Verdict::Outcome::kFail) << id;
    ASSERT_NE(verdict.first_divergence(), nullptr) << id;
    for (const auto& op : verdict.ops) {
      if (op.status == golden::OpStatus::kDiverged) {
        EXPECT_EQ(fnmatch(find_fault(id).starts_at.c_str(), op.op.c_str(), 0), 0) << id << " blamed on " << op.op;
      }
    }
  }
}

}  // namespace
}  // namespace tools
