// Op packs: what they hold, and that their bounds tell legal results from wrong ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>

#include "golden/store.hpp"
#include "tests/tools/op_pack_by_hand.hpp"
#include "tools/cli.hpp"
#include "tools/op_pack/admissible.hpp"
#include "tools/op_pack/judge.hpp"
#include "tools/op_pack/kinds.hpp"
#include "tools/op_pack/make.hpp"

namespace tools::op_pack {
namespace {

using Outputs = std::map<std::string, model::TensorView>;

PackRequest small_request(const std::string& kind) {
  PackRequest request;
  request.kind = kind;
  request.shape = std::string(find_kind(kind).example);
  return request;
}

class OpPackTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("op_pack_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Written and read again, as users have it.
  [[nodiscard]] OpPack pack_of(const PackRequest& request) const {
    write_pack(folder_ / "pack.safetensors", make_pack(request));
    return read_pack(folder_ / "pack.safetensors");
  }

  std::filesystem::path folder_;
};

Outputs own_outputs(const OpPack& pack) {
  Outputs outputs;
  for (const auto& output : pack.outputs) {
    outputs[tensor_name("output", output.name)] = output.stored;
  }
  return outputs;
}

bool passes(const OpPack& pack, const Outputs& outputs) {
  const auto judgements = judge(pack, outputs);
  return std::all_of(judgements.begin(), judgements.end(), [](const auto& j) { return j.passes(); });
}

// One code raised by one step.
template <typename T>
model::TensorView stepped(const model::TensorView& view, size_t index) {
  const auto codes = view.codes<T>();
  std::vector<T> changed(codes.begin(), codes.end());
  changed[index] = static_cast<T>(changed[index] + 1);
  return model::make_tensor(view.dtype, view.shape, std::move(changed));
}

// First element with one legal number.
size_t decided_element(const OpPack& pack) {
  const auto low = model::to_double(tensor(pack, "low"));
  const auto high = model::to_double(tensor(pack, "high"));
  size_t index = 0;
  while (low[index] != high[index] || low[index] == 0) {
    ++index;
  }
  return index;
}

constexpr size_t kNone = SIZE_MAX;

// One group is kept.
model::ModelConfig choice_config(int64_t num_experts, int64_t num_groups, int64_t k) {
  model::ModelConfig config;
  config.n_routed_experts = num_experts;
  config.n_group = num_groups;
  config.num_experts_per_tok = k;
  return config;
}

TEST_F(OpPackTest, EveryKind_OwnOutputPasses) {
  for (const auto& kind : all_kinds()) {
    const auto pack = pack_of(small_request(std::string(kind.name)));
    EXPECT_TRUE(passes(pack, own_outputs(pack))) << kind.name;
    EXPECT_EQ(pack.facts.at("kind"), kind.name);
  }
}

TEST_F(OpPackTest, EveryProfileAndVariant_OwnOutputPasses) {
  for (const auto& [profile, variant, kind] : {std::array{"hf", "", "linear"},
                                               std::array{"v3-demo", "", "grouped_linear"},
                                               std::array{"v3-demo", "", "router"},
                                               std::array{"hf", "", "combine"},
                                               std::array{"v32", "probs-online-64", "mla_decode"},
                                               std::array{"v32", "probs-unnormalised", "mla_prefill"},
                                               std::array{"v32", "code-max-over-amax", "act_quant"},
                                               std::array{"v32", "swiglu-bf16", "swiglu_quant"}}) {
    auto request = small_request(kind);
    request.mode.profile = profile;
    request.variant = variant;
    const auto pack = pack_of(request);
    EXPECT_TRUE(passes(pack, own_outputs(pack))) << profile << variant << kind;
  }
}

TEST_F(OpPackTest, OneChangedBf16Step_Fails) {
  for (const auto* kind : {"linear", "grouped_linear", "rms_norm", "mla_prefill", "mla_decode", "combine"}) {
    const auto pack = pack_of(small_request(kind));
    const size_t index = decided_element(pack);
    const auto judgement = judge(pack, {{"output", stepped<uint16_t>(pack.outputs[0].stored, index)}}).front();
    EXPECT_FALSE(judgement.passes()) << kind;
    EXPECT_EQ(judgement.num_failed, 1) << kind;
  }
}

TEST_F(OpPackTest, Linear_AnotherOrderPassesAndADroppedProductFails) {
  const auto pack = pack_of(small_request("linear"));
  EXPECT_TRUE(passes(pack, {{"output", descending_linear(pack, kNone)}}));
  EXPECT_FALSE(passes(pack, {{"output", descending_linear(pack, 100)}}));
}

TEST_F(OpPackTest, RmsNorm_AnotherOrderPassesAndADroppedSquareFails) {
  auto request = small_request("rms_norm");
  request.shape = "tokens=4,hidden=512";
  const auto pack = pack_of(request);
  EXPECT_TRUE(passes(pack, {{"output", descending_norm(pack, kNone)}}));
  EXPECT_FALSE(passes(pack, {{"output", descending_norm(pack, 300)}}));
}

TEST_F(OpPackTest, MlaDecode_AnotherOrderPassesAndADroppedKeyFails) {
  auto request = small_request("mla_decode");
  request.shape = "keys=70,heads=2";
  const auto pack = pack_of(request);
  EXPECT_TRUE(passes(pack, {{"output", descending_decode(pack, 0)}}));
  EXPECT_FALSE(passes(pack, {{"output", descending_decode(pack, 1)}}));
}

TEST_F(OpPackTest, Quantised_OneCodeOrScaleChanged_Fails) {
  for (const auto* kind : {"act_quant", "swiglu_quant"}) {
    const auto pack = pack_of(small_request(kind));
    auto outputs = own_outputs(pack);
    const auto codes = outputs["output"];
    outputs["output"] = stepped<uint8_t>(codes, decided_element(pack));
    EXPECT_FALSE(passes(pack, outputs)) << kind;
    outputs["output"] = codes;
    outputs["output.scales"] = stepped<uint32_t>(outputs["output.scales"], 1);
    EXPECT_FALSE(passes(pack, outputs)) << kind;
  }
}

TEST_F(OpPackTest, Router_SlotOrderIsFreeAndAWrongExpertFails) {
  const auto pack = pack_of(small_request("router"));
  auto outputs = own_outputs(pack);
  const auto reversed = [](const model::TensorView& view) {
    const auto codes = view.codes<uint32_t>();
    std::vector<uint32_t> rows(codes.begin(), codes.end());
    for (auto row = rows.begin(); row != rows.end(); row += view.row_len()) {
      std::reverse(row, row + view.row_len());
    }
    return model::make_tensor(view.dtype, view.shape, std::move(rows));
  };
  outputs["output"] = reversed(outputs["output"]);
  EXPECT_FALSE(passes(pack, outputs)) << "weights in another order than the ids";
  outputs["output.weights"] = reversed(outputs["output.weights"]);
  EXPECT_TRUE(passes(pack, outputs));
  const auto may = tensor(pack, "may_be_chosen").codes<uint8_t>();
  const auto codes = outputs["output"].codes<int32_t>();
  std::vector<int32_t> wrong(codes.begin(), codes.end());
  wrong[0] = static_cast<int32_t>(std::find(may.begin(), may.end(), 0) - may.begin());
  outputs["output"] = model::make_tensor(model::DType::kI32, outputs["output"].shape, wrong);
  EXPECT_FALSE(passes(pack, outputs));
  wrong[0] = wrong[1];
  outputs["output"] = model::make_tensor(model::DType::kI32, outputs["output"].shape, wrong);
  EXPECT_FALSE(passes(pack, outputs)) << "an expert twice";
}

// By hand: 0.50 and 0.49 lie within their errors of each other, 0.9 and 0.1 are clear of everything.
TEST(AdmissibleSets, ScoresWithinTheirErrors_AreFree) {
  const auto config = choice_config(4, 1, 2);
  const model::Estimate scores{
      {2, 4}, {0.9, 0.5, 0.49, 0.1, 0.1, 0.3, 0.5, 0.9}, std::vector<double>(8, 0.01), model::DType::kF32};
  const auto masks = admissible_sets(config, {}, scores, {});
  EXPECT_EQ(masks.may, (std::vector<uint8_t>{1, 1, 1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(masks.must, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 1, 1}));
}

// Groups of two, scored by their sum: 1.0 and 1.0, one is kept, and its best expert is chosen. The third group is clear below.
TEST(AdmissibleSets, GroupsWithinTheirErrors_FreeTheirExperts) {
  const auto config = choice_config(6, 3, 1);
  const model::Estimate scores{
      {1, 6}, {0.9, 0.1, 0.4, 0.6, 0.5, 0.1}, std::vector<double>(6, 0.001), model::DType::kF32};
  const auto masks = admissible_sets(config, {}, scores, {});
  EXPECT_EQ(masks.may, (std::vector<uint8_t>{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(masks.must, (std::vector<uint8_t>(6, 0)));
  const std::vector<float> bias{0, 0.5F, 0, 0, 0, 0};
  EXPECT_EQ(admissible_sets(config, {}, scores, bias).must, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0}));
}

TEST_F(OpPackTest, SameRequest_SameBytes) {
  const auto hash = [](uint64_t seed) {
    auto request = small_request("linear");
    request.seed = seed;
    return golden::content_hash(make_pack(request).outputs[0].stored);
  };
  EXPECT_EQ(hash(3), hash(3));
  EXPECT_NE(hash(3), hash(4));
}

TEST_F(OpPackTest, Checkpoint_GivesWeightAndSizes) {
  PackRequest request;
  request.kind = "linear";
  request.shape = "m=2";
  request.checkpoint = "synthetic:nano";
  request.layer = 1;
  request.op = "attn.kv_a";
  const auto pack = pack_of(request);
  const auto weight =
      open_checkpoint(request.checkpoint).weights->weight("model.layers.1.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(golden::content_hash(tensor(pack, "weight")), golden::content_hash(weight));
  EXPECT_EQ(pack.facts.at("shape").at("k"), weight.shape[1]);
  EXPECT_TRUE(passes(pack, own_outputs(pack)));
  for (const auto* kind : {"rms_norm", "router", "grouped_linear", "mla_decode", "combine"}) {
    request.kind = kind;
    request.shape = "";
    request.op = "";
    const auto other = pack_of(request);
    EXPECT_TRUE(passes(other, own_outputs(other))) << kind;
  }
}

TEST_F(OpPackTest, BadRequests_AreRefused) {
  const auto refuses = [](const std::string& kind, auto change) {
    auto request = small_request(kind);
    change(request);
    EXPECT_THROW(make_pack(request), model::InputError) << kind;
  };
  refuses("linear", [](PackRequest& r) { r.kind = "conv"; });
  refuses("linear", [](PackRequest& r) { r.shape = "z=3"; });
  refuses("linear", [](PackRequest& r) { r.shape = "m=0"; });
  refuses("linear", [](PackRequest& r) { r.shape = "m=-1"; });
  refuses("linear", [](PackRequest& r) { r.shape = "m=1:2"; });
  refuses("linear", [](PackRequest& r) { r.variant = "no-such"; });
  refuses("linear", [](PackRequest& r) { r.layer = 1; });
  refuses("grouped_linear", [](PackRequest& r) { r.shape = "rows=0:0"; });
  refuses("router", [](PackRequest& r) { r.shape = "experts=30"; });
  refuses("act_quant", [](PackRequest& r) { r.mode.profile = "hf"; });
  refuses("act_quant", [](PackRequest& r) { r.checkpoint = "synthetic:nano"; });
}

}  // namespace
}  // namespace tools::op_pack
