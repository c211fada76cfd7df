#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "model/checkpoint.hpp"
#include "tests/model/hostile.hpp"
#include "tests/model/tiny_checkpoint.hpp"

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

std::string refusal(const TinyCheckpoint& checkpoint) {
  const TempDir dir;
  checkpoint.write(dir.path());
  return refusal_of([&] { const Checkpoint opened(dir.path()); });
}

std::string refusal_after(const std::function<void(const TempDir&)>& damage) {
  const TempDir dir;
  tiny_checkpoint().write(dir.path());
  damage(dir);
  return refusal_of([&] { const Checkpoint opened(dir.path()); });
}

TEST(CheckpointRefusal, WrongTensor_IsRefusedByName) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string ragged = "model.layers.0.mlp.gate_proj.weight_scale_inv";  // [2, 1]
  const struct {
    Damage damage;
    std::string fragment;
  } cases[] = {
      {[](auto& tiny) { tiny.remove("model.norm.weight"); }, "1 missing: model.norm.weight"},
      {[](auto& tiny) { tiny.remove(kLinear), tiny.remove(kScale); }, "2 missing: " + kLinear + ", " + kScale},
      {[](auto& tiny) { tiny.remove(kMtp + "eh_proj.weight"); }, "1 missing: model.layers.2.eh_proj.weight"},
      {[](auto& tiny) { tiny.remove("lm_head.weight"); }, "1 missing: lm_head.weight"},
      {[](auto& tiny) { tiny.config["num_hidden_layers"] = 300; }, "model.layers.3.input_layernorm.weight"},
      {[](auto& tiny) { tiny.config["num_hidden_layers"] = 30'000; }, "tensors, but config.json describes more than"},
      {[](auto& tiny) { tiny.config["num_nextn_predict_layers"] = 0; }, "unknown: model.layers.2."},
      {[](auto& tiny) { tiny.add("model.extra", f32({1}, {1})); }, "1 unknown: model.extra"},
      {[](auto& tiny) {
         for (const char* name : {"x1", "x2", "x3", "x4", "x5"}) {
           tiny.add(name, f32({1}, {1}));
         }
       },
       "5 unknown: x1, x2, x3 and 2 more"},
      {[](auto& tiny) { tiny.add("a\nb", f32({1}, {1})); }, "1 unknown: a\\x0ab"},
      {[](auto& tiny) { tiny.tensors.at("model.norm.weight") = tiny_tensor(DType::kBF16, {63}, true); },
       "tensor model.norm.weight: shape [63], expected [64] from config.json"},
      {[](auto& tiny) {
         tiny.tensors.at(kLinear) = tiny_tensor(DType::kF8E4M3, {64, 32}, false);
       },
       "tensor " + kLinear + ": shape [64, 32], expected [32, 64]"},
      {[&](auto& tiny) {
         tiny.tensors.at(ragged) = f32({1, 1}, {1});
       },
       "shape [1, 1], expected [2, 1]"},
      {[](auto& tiny) {
         tiny.tensors.at("lm_head.weight") = tiny_tensor(DType::kF8E4M3, {16, 64}, false);
       },
       "tensor lm_head.weight: dtype F8_E4M3, expected BF16 or F32"},
      {[](auto& tiny) { tiny.tensors.at("model.norm.weight") = tiny_tensor(DType::kF16, {64}, true); },
       "tensor model.norm.weight: dtype F16, expected BF16 or F32"},
      {[](auto& tiny) {
         tiny.tensors.at(kScale) = tiny_tensor(DType::kBF16, {1, 1}, true);
       },
       "tensor " + kScale + ": dtype BF16, expected F32 or F8_E8M0"},
      {[](auto& tiny) {
         tiny.tensors.at(kLinear) = tiny_tensor(DType::kU8, {32, 64}, false);
       },
       "tensor " + kLinear + ": dtype U8, expected F8_E4M3"},
      // One linear weight in BF16 among FP8 ones, with and without its scale.
      {[](auto& tiny) {
         tiny.tensors.at(kLinear) = tiny_tensor(DType::kBF16, {32, 64}, false);
       },
       "tensor " + kLinear + ": dtype BF16, expected F8_E4M3 as in a checkpoint with FP8 linear weights"},
      {[](auto& tiny) {
         tiny.tensors.at(kLinear) = tiny_tensor(DType::kBF16, {32, 64}, false), tiny.remove(kScale);
       },
       "tensor " + kLinear + ": dtype BF16, expected F8_E4M3 as in a checkpoint with FP8 linear weights"},
      // No scale, or one under another name.
      {[](auto& tiny) { tiny.remove(kScale); }, kLinear + " is F8_E4M3, but its scale " + kScale + " is missing"},
      {[](auto& tiny) {
         tiny.config.erase("quantization_config");
         tiny.remove(kScale);
       },
       kLinear + " is F8_E4M3, but its scale " + kScale + " is missing"},
      {[](auto& tiny) {
         tiny.add("model.layers.1.mlp.experts.3.up_proj.scale", tiny.tensors.at(kScale));
         tiny.remove(kScale);
       },
       "but its scale " + kScale + " is missing"},
      {[&](auto& tiny) {
         tiny.tensors.at(ragged) = f32({2, 1}, {1, nan});
       },
       "tensor " + ragged + ": value nan at [1, 0], expected a finite positive scale"},
      {[&](auto& tiny) {
         tiny.tensors.at(ragged) = f32({2, 1}, {infinity, 1});
       },
       "value inf at [0, 0]"},
      {[&](auto& tiny) {
         tiny.tensors.at(ragged) = f32({2, 1}, {1, 0});
       },
       "value 0 at [1, 0]"},
      {[&](auto& tiny) {
         tiny.tensors.at(ragged) = f32({2, 1}, {1, -0.5f});
       },
       "value -0.5 at [1, 0]"},
      {[](auto& tiny) {
         tiny.tensors.at(kScale) = make_tensor<uint8_t>(DType::kF8E8M0, {1, 1}, {255});
       },
       "value nan at [0, 0]"},
      {[&](auto& tiny) {
         tiny.tensors.at(kBias) = f32({4}, {0, 1, nan, 3});
       },
       "tensor " + kBias + ": value nan at [2], expected a finite bias"},
      {[&](auto& tiny) {
         tiny.tensors.at(kBias) = f32({4}, {0, 1, 2, -infinity});
       },
       "value -inf at [3]"},
      {[](auto& tiny) {
         tiny.tensors.at(kBias) = make_tensor<uint16_t>(DType::kBF16, {4}, {0, 0x7F80, 0, 0});
       },
       "value inf at [1]"},
  };
  for (const auto& [damage, fragment] : cases) {
    TinyCheckpoint tiny = tiny_checkpoint();
    damage(tiny);
    expect_fragment(refusal(tiny), fragment);
  }
}

TEST(CheckpointRefusal, IndexThatLies_IsRefused) {
  const auto with_index = [](const std::function<void(nlohmann::json&)>& change) {
    return refusal_after([&](const TempDir& dir) {
      nlohmann::json index = nlohmann::json::parse(read_bytes(dir / TinyCheckpoint::kIndex));
      change(index);
      write_bytes(dir / TinyCheckpoint::kIndex, index.dump());
    });
  };
  const auto with_shard = [&](const nlohmann::json& shard) {
    return with_index([&](nlohmann::json& index) { index["weight_map"][kLinear] = shard; });
  };
  expect_fragment(
      with_shard(TinyCheckpoint::kSecondShard),
      "the index places tensor " + kLinear + " in model-00002-of-000002.safetensors, but it is in model-00001-of");
  expect_fragment(with_shard("model-00003.safetensors"),
                  "1 of the 3 shards in model.safetensors.index.json are not there: model-00003");
  for (const std::string outside : {"../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "a\\b"}) {
    expect_fragment(with_shard(outside), "points outside the checkpoint");
  }
  expect_fragment(with_shard(std::string("a\0b", 3)), "shard \"a\\x00b\" points outside the checkpoint");
  expect_fragment(with_shard(7), "expected a file name, found 7");
  expect_fragment(with_shard("config.json"), "config.json: file ends at byte");
  expect_fragment(with_index([](nlohmann::json& index) { index["weight_map"].erase(kLinear); }),
                  "tensor " + kLinear + " of shard model-00001-of-000002.safetensors is not in the index");
  expect_fragment(with_index([](nlohmann::json& index) { index["weight_map"]["ghost"] = TinyCheckpoint::kFirstShard; }),
                  "the index places tensor ghost in model-00001-of-000002.safetensors, which does not hold it");
  expect_fragment(with_index([](nlohmann::json& index) { index.erase("weight_map"); }),
                  "expected an object with a weight_map");
  expect_fragment(with_index([](nlohmann::json& index) { index = nlohmann::json::array(); }),
                  "expected an object with a weight_map");
  expect_fragment(with_index([](nlohmann::json& index) { index["weight_map"] = nlohmann::json::object(); }),
                  "missing: ");
}

TEST(CheckpointRefusal, DamagedFiles_AreRefused) {
  const std::filesystem::path first = TinyCheckpoint::kFirstShard;
  expect_fragment(refusal_after([&](const TempDir& dir) { std::filesystem::remove(dir / first); }),
                  "1 of the 2 shards in model.safetensors.index.json are not there: model-00001-of-000002.safetensors");
  expect_fragment(refusal_after([&](const TempDir& dir) {
                    std::filesystem::resize_file(dir / first, std::filesystem::file_size(dir / first) - 1);
                  }),
                  "but its header promises");
  expect_fragment(refusal_after([&](const TempDir& dir) {
                    std::filesystem::remove(dir / first);
                    std::filesystem::create_directory(dir / first);
                  }),
                  "model-00001-of-000002.safetensors: not a regular file");
  expect_fragment(
      refusal_after([](const TempDir& dir) { write_bytes(dir / TinyCheckpoint::kIndex, R"({"a":1,"a":2})"); }),
      "model.safetensors.index.json: the name a appears twice");
  expect_fragment(
      refusal_after([](const TempDir& dir) { write_bytes(dir / TinyCheckpoint::kIndex, std::string(1 << 20, '[')); }),
      "nested deeper");
  expect_fragment(refusal_after([](const TempDir& dir) { std::filesystem::remove(dir / TinyCheckpoint::kIndex); }),
                  "no weights: expected model.safetensors.index.json or model.safetensors");
  expect_fragment(refusal_after([](const TempDir& dir) { std::filesystem::remove(dir / "config.json"); }),
                  "config.json");
  expect_fragment(refusal_of([] { const Checkpoint opened("/no/such/directory"); }), "/no/such/directory");
}

TEST(CheckpointRefusal, TensorInTwoShards_IsRefused) {
  const std::string message = refusal_after([](const TempDir& dir) {
    const TinyCheckpoint tiny = tiny_checkpoint();
    std::vector<std::pair<std::string, TensorView>> contents;
    for (const auto& [name, tensor] : tiny.tensors) {
      if (tiny.weight_map.at(name) == TinyCheckpoint::kSecondShard || name == kLinear) {
        contents.emplace_back(name, tensor);
      }
    }
    write_safetensors(dir / TinyCheckpoint::kSecondShard, contents, {});
  });
  expect_fragment(
      message, "tensor " + kLinear + " is in two shards, model-00001-of-000002.safetensors and model-00002-of-000002");
}

// Damage anywhere in a text or a header ends in an InputError or in a checkpoint that can be read in full.
TEST(CheckpointRefusal, RandomDamage_EndsInAnInputErrorOrInACheckpoint) {
  const TempDir dir;
  const TinyCheckpoint tiny = tiny_checkpoint();
  tiny.write(dir.path());
  const std::string names[] = {
      "config.json", TinyCheckpoint::kIndex, TinyCheckpoint::kFirstShard, TinyCheckpoint::kSecondShard};
  std::map<std::string, std::string> intact;
  for (const std::string& name : names) {
    intact[name] = read_bytes(dir / name);
  }
  std::mt19937 random(7);
  int num_refused = 0;
  for (int iteration = 0; iteration < 2000; ++iteration) {
    const std::string& name = names[random() % 4];
    std::string bytes = intact.at(name);
    const size_t position = random() % std::min<size_t>(bytes.size(), 8192);
    switch (random() % 4) {
      case 0: bytes[position] = static_cast<char>(bytes[position] ^ (1 << random() % 8)); break;
      case 1: bytes[position] = static_cast<char>('0' + random() % 10); break;
      case 2: bytes.erase(position, 1 + random() % 40); break;
      default: bytes.resize(random() % bytes.size()); break;
    }
    write_bytes(dir / name, bytes);
    try {
      const Checkpoint checkpoint(dir.path());
      ASSERT_EQ(to_double(checkpoint.weight("lm_head.weight")).size(), 16u * 64u);
    } catch (const InputError&) {
      ++num_refused;
    }
    write_bytes(dir / name, intact.at(name));
  }
  EXPECT_GT(num_refused, 1000);
}

}  // namespace
}  // namespace model
