#include "model/checkpoint.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/model/hostile.hpp"
#include "tests/model/tiny_checkpoint.hpp"
#include "tests/paths.hpp"

namespace model {
namespace {

using Damage = std::function<void(TinyCheckpoint&)>;

const std::string kLinear = "model.layers.1.mlp.experts.3.up_proj.weight";
const std::string kScale = kLinear + "_scale_inv";
const std::string kBias = "model.layers.1.mlp.gate.e_score_correction_bias";
const std::string kMtp = "model.layers.2.";

TensorView f32(const Shape& shape, const std::vector<float>& values) {
  return make_tensor<float>(DType::kF32, shape, values);
}

// The tiny checkpoint without FP8: every linear weight BF16, no scales.
TinyCheckpoint tiny_bf16_checkpoint() {
  nlohmann::json config = tiny_config();
  config.erase("quantization_config");
  return tiny_checkpoint(config);
}

std::string refusal(const TinyCheckpoint& checkpoint) {
  const TempDir dir;
  checkpoint.write(dir.path());
  return refusal_of([&] { const Checkpoint opened(dir.path()); });
}

TEST(Checkpoint, EveryTensorOfTheCatalogue_IsServedFromItsShard) {
  const TempDir dir;
  const TinyCheckpoint tiny = tiny_checkpoint();
  tiny.write(dir.path());
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.config().hidden_size, 64);
  EXPECT_TRUE(checkpoint.config().quantization.has_value());
  EXPECT_NE(tiny.weight_map.at(kLinear), tiny.weight_map.at(kScale));
  for (const auto& [name, tensor] : tiny.tensors) {
    const TensorView opened = checkpoint.weight(name);
    EXPECT_EQ(opened.shape, tensor.shape) << name;
    EXPECT_EQ(to_double(opened), to_double(tensor)) << name;
  }
}

TEST(Checkpoint, RaggedBlocks_HaveAScaleOfTheirOwn) {
  const TempDir dir;
  tiny_checkpoint().write(dir.path());
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.weight("model.layers.0.mlp.gate_proj.weight_scale_inv").shape, (Shape{2, 1}));  // 160 rows
  EXPECT_EQ(checkpoint.weight("model.layers.0.mlp.down_proj.weight_scale_inv").shape, (Shape{1, 2}));
}

TEST(Checkpoint, UnknownWeight_IsNamed) {
  const TempDir dir;
  tiny_checkpoint().write(dir.path());
  const Checkpoint checkpoint(dir.path());
  expect_fragment(refusal_of([&] { (void)checkpoint.weight("model.nothing"); }), "no tensor model.nothing");
}

TEST(Checkpoint, WeightsOutliveTheCheckpoint) {
  const TempDir dir;
  tiny_checkpoint().write(dir.path());
  const TensorView scale = Checkpoint(dir.path()).weight(kScale);
  EXPECT_EQ(scale.codes<float>()[0], 0.125f);
}

TEST(Checkpoint, SingleFileWithoutIndex_IsAccepted) {
  const TempDir dir;
  const TinyCheckpoint tiny = tiny_checkpoint();
  write_bytes(dir / "config.json", tiny.config.dump());
  write_safetensors(dir / "model.safetensors", {tiny.tensors.begin(), tiny.tensors.end()}, {});
  EXPECT_EQ(Checkpoint(dir.path()).weight(kScale).size(), 1);
}

TEST(Checkpoint, Hash_FollowsConfigAndHeadersOnly) {
  const auto hash_of = [](const Damage& damage) {
    const TempDir dir;
    TinyCheckpoint tiny = tiny_checkpoint();
    damage(tiny);
    tiny.write(dir.path());
    return Checkpoint(dir.path()).header_hash();
  };
  const std::string hash = hash_of([](TinyCheckpoint&) {});
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(hash, hash_of([](TinyCheckpoint& tiny) { tiny.tensors.at(kScale) = f32({1, 1}, {3}); }));
  EXPECT_NE(hash, hash_of([](TinyCheckpoint& tiny) { tiny.config["rope_theta"] = 500; }));
  EXPECT_NE(hash,
            hash_of([](TinyCheckpoint& tiny) { tiny.tensors.at(kBias) = tiny_tensor(DType::kBF16, {4}, false); }));
}

TEST(Checkpoint, MtpCopies_MayBeAbsentAndThenAliasTheMainOnes) {
  const TempDir dir;
  TinyCheckpoint tiny = tiny_checkpoint();
  tiny.remove(kMtp + "embed_tokens.weight");
  tiny.remove(kMtp + "shared_head.head.weight");
  tiny.write(dir.path());
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(checkpoint.weight(kMtp + "embed_tokens.weight").bytes.data(),
            checkpoint.weight("model.embed_tokens.weight").bytes.data());
  EXPECT_EQ(checkpoint.weight(kMtp + "shared_head.head.weight").bytes.data(),
            checkpoint.weight("lm_head.weight").bytes.data());
}

TEST(Checkpoint, MtpCopiesThatDiffer_AreUsedAsTheyAre) {
  const TempDir dir;
  TinyCheckpoint tiny = tiny_checkpoint();
  tiny.tensors.at(kMtp + "embed_tokens.weight") = tiny_tensor(DType::kBF16, {16, 64}, true);
  tiny.write(dir.path());
  const Checkpoint checkpoint(dir.path());
  EXPECT_EQ(to_double(checkpoint.weight(kMtp + "embed_tokens.weight"))[1], 0.25);
  EXPECT_EQ(to_double(checkpoint.weight("model.embed_tokens.weight"))[1], -0.25);
}

TEST(Checkpoint, TiedEmbeddings_ServeTheEmbeddingAsHead) {
  const TempDir dir;
  TinyCheckpoint tiny = tiny_checkpoint();
  tiny.config["tie_word_embeddings"] = true;
  tiny.remove("lm_head.weight");
  tiny.remove(kMtp + "shared_head.head.weight");
  tiny.write(dir.path());
  const Checkpoint checkpoint(dir.path());
  const auto* embed = checkpoint.weight("model.embed_tokens.weight").bytes.data();
  EXPECT_EQ(checkpoint.weight("lm_head.weight").bytes.data(), embed);
  EXPECT_EQ(checkpoint.weight(kMtp + "shared_head.head.weight").bytes.data(), embed);
}

TEST(Checkpoint, TiedEmbeddingsWithAHeadOfTheirOwn_MustAgree) {
  TinyCheckpoint tiny = tiny_checkpoint();
  tiny.config["tie_word_embeddings"] = true;
  const TempDir dir;
  tiny.write(dir.path());
  EXPECT_EQ(Checkpoint(dir.path()).weight("lm_head.weight").size(), 16 * 64);
  tiny.tensors.at("lm_head.weight") = tiny_tensor(DType::kBF16, {16, 64}, true);
  expect_fragment(refusal(tiny), "lm_head.weight differs from model.embed_tokens.weight");
}

TEST(Checkpoint, Bf16CopyWithStaleQuantizationConfig_IsBf16) {
  const TempDir dir;
  TinyCheckpoint tiny = tiny_bf16_checkpoint();
  tiny.config = tiny_config();
  tiny.write(dir.path());
  const Checkpoint checkpoint(dir.path());
  EXPECT_FALSE(checkpoint.config().quantization.has_value());
  EXPECT_EQ(checkpoint.weight(kLinear).dtype, DType::kBF16);
}

TEST(Checkpoint, Fp8WeightsWithoutQuantizationConfig_AreFp8) {
  const TempDir dir;
  TinyCheckpoint tiny = tiny_checkpoint();
  tiny.config.erase("quantization_config");
  tiny.write(dir.path());
  const Checkpoint checkpoint(dir.path());
  ASSERT_TRUE(checkpoint.config().quantization.has_value());
  EXPECT_EQ(checkpoint.config().quantization->block_rows, 128);
  EXPECT_EQ(checkpoint.weight(kScale).shape, (Shape{1, 1}));
}

TEST(Checkpoint, OtherFormatsThatARoleAllows_AreAccepted) {
  const Damage damages[] = {
      [](TinyCheckpoint& tiny) { tiny.tensors.at(kBias) = tiny_tensor(DType::kBF16, {4}, false); },
      [](TinyCheckpoint& tiny) { tiny.tensors.at("model.norm.weight") = tiny_tensor(DType::kF32, {64}, true); },
      [](TinyCheckpoint& tiny) {
        tiny.tensors.at("lm_head.weight") = tiny_tensor(DType::kF32, {16, 64}, true);
      },
      [](TinyCheckpoint& tiny) {
        tiny.tensors.at(kScale) = make_tensor<uint8_t>(DType::kF8E8M0, {1, 1}, {0});
      },
      // A scale of the smallest subnormal is odd, but finite and positive.
      [](TinyCheckpoint& tiny) {
        tiny.tensors.at(kScale) = f32({1, 1}, {std::numeric_limits<float>::denorm_min()});
      },
  };
  for (const Damage& damage : damages) {
    const TempDir dir;
    TinyCheckpoint tiny = tiny_checkpoint();
    damage(tiny);
    tiny.write(dir.path());
    EXPECT_NO_THROW((void)Checkpoint(dir.path()));
  }
  TinyCheckpoint bf16 = tiny_bf16_checkpoint();
  bf16.tensors.at(kLinear) = tiny_tensor(DType::kF32, {32, 64}, false);
  const TempDir dir;
  bf16.write(dir.path());
  EXPECT_EQ(Checkpoint(dir.path()).weight(kLinear).dtype, DType::kF32);
}

TEST(Checkpoint, IgnoredPrefix_LetsUnknownTensorsPass) {
  const TempDir dir;
  TinyCheckpoint tiny = tiny_checkpoint();
  tiny.add("model.layers.7.extra", f32({1}, {1}));
  tiny.write(dir.path());
  expect_fragment(refusal_of([&] { const Checkpoint opened(dir.path(), {"model.layers.8."}); }),
                  "model.layers.7.extra");
  const Checkpoint checkpoint(dir.path(), {"model.layers.8.", "model.layers.7."});
  expect_fragment(refusal_of([&] { (void)checkpoint.weight("model.layers.7.extra"); }), "no tensor");
}

TEST(Checkpoint, TrainedMini_Opens) {
  const Checkpoint checkpoint(source_dir() / "golden/data/mini/checkpoint");
  EXPECT_EQ(checkpoint.config().vocab_size, 2048);
  EXPECT_TRUE(checkpoint.config().quantization.has_value());
  EXPECT_EQ(checkpoint.weight("model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv").shape, (Shape{2, 2}));
}

}  // namespace
}  // namespace model
