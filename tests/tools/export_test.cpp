// Exported checkpoints: what is written is what was generated, and it opens as any checkpoint does.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "model/check.hpp"
#include "model/checkpoint.hpp"
#include "model/safetensors.hpp"
#include "model/tensor_catalog.hpp"
#include "tests/paths.hpp"
#include "tests/temp_dir.hpp"
#include "tools/export.hpp"
#include "tools/record.hpp"
#include "tools/synthetic/argument.hpp"

namespace tools {
namespace {

TEST(Export, StoredTensorsAndConfig_AreTheGeneratedOnes) {
  const TempDir folder;
  for (const std::string name : {"nano", "ragged", "notv3", "edge", "par"}) {
    const auto weights = synthetic::open_synthetic("synthetic:" + name);
    export_checkpoint(*weights, folder / name, false);
    const model::Checkpoint checkpoint(folder / name);
    EXPECT_EQ(checkpoint.config(), weights->config()) << name;
    EXPECT_TRUE(checkpoint.config().unknown_keys.empty()) << name;
    for (const auto& tensor : model::tensor_catalog(weights->config())) {
      const auto stored = checkpoint.weight(tensor.name);
      const auto generated = weights->weight(tensor.name);
      ASSERT_EQ(stored.dtype, generated.dtype);
      ASSERT_TRUE(std::ranges::equal(stored.bytes, generated.bytes)) << name << " " << tensor.name;
    }
  }
}

TEST(Export, HasFourShards_WithSomeScalesApartFromTheirWeights) {
  const TempDir folder;
  export_checkpoint(*synthetic::open_synthetic("synthetic:nano"), folder / "c", false);
  std::map<std::string, std::string> shard_of;
  std::set<std::string> shards;
  for (const auto& file : std::filesystem::directory_iterator(folder / "c")) {
    if (file.path().extension() == ".safetensors") {
      shards.insert(file.path().filename());
      const auto contents = model::read_safetensors(file.path());
      EXPECT_EQ(contents.metadata.at("format"), "pt");
      for (const auto& [name, tensor] : contents.tensors) {
        shard_of[name] = file.path().filename();
      }
    }
  }
  EXPECT_EQ(shards,
            (std::set<std::string>{"model-00001-of-000004.safetensors",
                                   "model-00002-of-000004.safetensors",
                                   "model-00003-of-000004.safetensors",
                                   "model-00004-of-000004.safetensors"}));
  int64_t num_apart = 0;
  int64_t num_together = 0;
  for (const auto& [name, shard] : shard_of) {
    if (const auto scale = shard_of.find(name + "_scale_inv"); scale != shard_of.end()) {
      (scale->second == shard ? num_together : num_apart) += 1;
    }
  }
  EXPECT_GT(num_apart, 20);
  EXPECT_GT(num_together, 20);
}

TEST(Export, AsBf16_HoldsRoundedProducts_AndNoScales) {
  const TempDir folder;
  const auto weights = synthetic::open_synthetic("synthetic:ragged");
  export_checkpoint(*weights, folder / "c", true);
  const model::Checkpoint checkpoint(folder / "c");
  EXPECT_FALSE(checkpoint.config().quantization.has_value());
  const std::string name = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight";  // ragged blocks
  const auto codes = model::to_double(weights->weight(name));
  const auto scales = weights->weight(name + "_scale_inv");
  const auto stored = model::to_double(checkpoint.weight(name));
  const int64_t cols = scales.shape[1];
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / 320;
    const auto col = static_cast<int64_t>(i) % 320;
    // The product of an E4M3 number and a float fits a double; the float nearest to it is FP32(code * scale).
    const auto product = static_cast<float>(
        codes[i] * static_cast<double>(scales.codes<float>()[static_cast<size_t>(row / 128 * cols + col / 128)]));
    // BF16 keeps 8 bits: nearest means within half a step, and a BF16 number has no more bits.
    int exponent = 0;
    std::frexp(product, &exponent);
    ASSERT_LE(std::abs(stored[i] - static_cast<double>(product)), std::ldexp(0.5, exponent - 8)) << i;
  }
  EXPECT_THROW((void)checkpoint.weight(name + "_scale_inv"), model::InputError);
}

TEST(Export, ExistingPlace_IsRefused_AndLeftAlone) {
  const TempDir folder;
  write_bytes(folder / "file", "mine");
  const auto weights = synthetic::open_synthetic("synthetic:edge");
  EXPECT_THROW(export_checkpoint(*weights, folder / "file", false), model::InputError);
  EXPECT_EQ(read_bytes(folder / "file"), "mine");
  EXPECT_THROW(export_checkpoint(*weights, folder.path(), false), model::InputError);
  EXPECT_THROW(export_checkpoint(*weights, folder / "no/such/place", false), model::InputError);
  const auto entries = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);  // nothing half-made is left
}

// A source that fails after some tensors.
class FailingWeights : public model::WeightSource {
 public:
  explicit FailingWeights(const model::WeightSource& original) : original_(original) {}
  [[nodiscard]] const model::ModelConfig& config() const override { return original_.config(); }
  [[nodiscard]] model::TensorView weight(const std::string& name) const override {
    if (name == "lm_head.weight") {
      model::throw_input_error("no {}", name);
    }
    return original_.weight(name);
  }

 private:
  const model::WeightSource& original_;
};

TEST(Export, WhatFailsOnTheWay_LeavesNothingBehind) {
  const TempDir folder;
  const auto weights = synthetic::open_synthetic("synthetic:edge");
  EXPECT_THROW(export_checkpoint(FailingWeights(*weights), folder / "c", false), model::InputError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Values of a prompt on a checkpoint, by op.
std::map<std::string, model::TensorView> values_of(const model::WeightSource& weights) {
  RecordJob job{.mode = resolved({}, weights.config()), .cases = {golden::prompt_case({5, 17, 3, 80})}, .recorded = {}};
  return record(weights, job).tensors;
}

TEST(Truncate, FirstLayers_GiveTheBitsTheyGiveInTheWholeModel) {
  const TempDir folder;
  const std::filesystem::path mini = source_dir() / "golden/data/mini/checkpoint";
  const model::Checkpoint whole(mini);
  truncate_checkpoint(whole, 2, mini, folder / "first");
  const model::Checkpoint first(folder / "first");
  EXPECT_EQ(first.config().num_hidden_layers, 2);
  EXPECT_EQ(first.config().num_nextn_predict_layers, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "first" / "tokenizer.json"));
  const auto expected = values_of(whole);
  int64_t num_compared = 0;
  for (const auto& [name, tensor] : values_of(first)) {
    if (name.find("/layer.") != std::string::npos || name.ends_with("/embed")) {
      EXPECT_TRUE(std::ranges::equal(tensor.bytes, expected.at(name).bytes)) << name;
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 50);
}

TEST(Truncate, NumbersOfLayersThatAreNotThere_AreRefused) {
  const TempDir folder;
  const auto weights = synthetic::open_synthetic("synthetic:nano");
  for (const int64_t num_layers : {-1, 0, 5}) {
    EXPECT_THROW(truncate_checkpoint(*weights, num_layers, "", folder / "c"), model::InputError);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace tools
