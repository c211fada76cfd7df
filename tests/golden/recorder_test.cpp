#include "golden/recorder.hpp"

#include <gtest/gtest.h>

#include "model/check.hpp"

namespace {

using golden::Case;
using golden::Recorder;
using model::DType;
using model::Op;

const Case kThreeTokens{.name = "p3", .sequences = {{1, 2, 3}}};

Op op(const std::string& id, int64_t layer = -1, bool optional = false) {
  Op result;
  result.id = id;
  result.layer = layer;
  result.optional = optional;
  return result;
}

model::TensorView three_rows() {
  return model::make_tensor(DType::kF32, {3, 1}, std::vector<float>{1, 2, 3});
}

std::vector<std::string> recorded(Recorder recorder, const std::vector<Op>& ops) {
  for (const Op& each : ops) {
    recorder.see(each, three_rows());
  }
  std::vector<std::string> names;
  for (const auto& [name, tensor] : recorder.tensors()) {
    names.push_back(name);
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(Recorder, WithoutGlobsKeepsEverythingButOptionalOps) {
  EXPECT_EQ(recorded(Recorder(kThreeTokens), {op("embed"), op("layer.0.attn.lse", 0, true), op("layer.0.ffn", 0)}),
            (Names{"p3/embed", "p3/layer.0.ffn"}));
}

TEST(Recorder, AGlobChoosesByIdAndReachesOptionalOps) {
  const std::vector<Op> ops{op("layer.0.attn.lse", 0, true), op("layer.12.attn.lse", 12, true), op("layer.0.ffn", 0)};
  EXPECT_EQ(recorded(Recorder(kThreeTokens, {"layer.*.lse"}), ops),
            (Names{"p3/layer.0.attn.lse", "p3/layer.12.attn.lse"}));
  EXPECT_EQ(recorded(Recorder(kThreeTokens, {"layer.?.lse"}), ops), Names{});
  EXPECT_EQ(recorded(Recorder(kThreeTokens, {"layer.[0-9].attn.lse", "*.ffn"}), ops),
            (Names{"p3/layer.0.attn.lse", "p3/layer.0.ffn"}));
}

TEST(Recorder, WantsAnOptionalOpOnlyWhenAGlobNamesIt) {
  EXPECT_FALSE(Recorder(kThreeTokens).wants(op("layer.0.attn.lse", 0, true)));
  EXPECT_TRUE(Recorder(kThreeTokens, {"*lse"}).wants(op("layer.0.attn.lse", 0, true)));
  EXPECT_FALSE(Recorder(kThreeTokens, {"*lse"}, {1}).wants(op("layer.0.attn.lse", 0, true)));
}

TEST(Recorder, LayersLeaveOutOtherLayersAndKeepWhatBelongsToNone) {
  EXPECT_EQ(
      recorded(
          Recorder(kThreeTokens, {}, {0, 2}),
          {op("embed"), op("layer.0.ffn", 0), op("layer.1.ffn", 1), op("layer.2.ffn", 2), op("cache.1.latent", 1)}),
      (Names{"p3/embed", "p3/layer.0.ffn", "p3/layer.2.ffn"}));
}

TEST(Recorder, CutsFinalNormAndLogitsToTheRowsOfTheCase) {
  Case cut = kThreeTokens;
  cut.rows = {0, 2};
  Recorder recorder(cut);
  for (const char* id : {"final_norm", "logits", "embed", "mtp.0.logits"}) {
    recorder.see(op(id), three_rows());
  }
  EXPECT_EQ(model::to_double(recorder.tensors().at("p3/final_norm")), (std::vector<double>{1, 3}));
  EXPECT_EQ(model::to_double(recorder.tensors().at("p3/logits")), (std::vector<double>{1, 3}));
  EXPECT_EQ(recorder.tensors().at("p3/embed").num_rows(), 3);
  EXPECT_EQ(recorder.tensors().at("p3/mtp.0.logits").num_rows(), 3);
}

TEST(Recorder, KeepsTheBytesAlive) {
  Recorder recorder(kThreeTokens);
  recorder.see(op("embed"), three_rows());
  EXPECT_EQ(model::to_double(recorder.tensors().at("p3/embed")), (std::vector<double>{1, 2, 3}));
}

TEST(Recorder, RefusesToSeeAnOpTwiceOrBytesWithoutAnOwner) {
  Recorder recorder(kThreeTokens);
  recorder.see(op("embed"), three_rows());
  EXPECT_THROW(recorder.see(op("embed"), three_rows()), model::CheckError);
  auto unowned = three_rows();
  unowned.owner = nullptr;
  EXPECT_THROW(recorder.see(op("layer.0.ffn", 0), unowned), model::CheckError);
}

}  // namespace
